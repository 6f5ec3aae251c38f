// The simulator, outside the page's thread. `ask` in page.js sends the requests; the module's functions are
// in crates/play/src/exports.rs.

const text = { write: new TextEncoder(), read: new TextDecoder() };
const loaded = fetch("play.wasm")
  .then((response) => {
    if (!response.ok) throw new Error("play.wasm is not there: `make play` builds it");
    return response.arrayBuffer();
  })
  .then((bytes) => WebAssembly.instantiate(bytes, {}))
  .then(({ instance }) => instance.exports);

const answer = (module, length) =>
  JSON.parse(text.read.decode(new Uint8Array(module.memory.buffer, module.answer(), length)));

/** Numbers of four bytes, copied, since the module reuses their memory. */
function numbers(module, length) {
  if (length < 0) throw new Error(answer(module, -length).error);
  const from = module.answer();
  return new Float32Array(module.memory.buffer.slice(from, from + 4 * length));
}

let lanes = 0;
const does = {
  list: (module) => answer(module, module.list()),

  /** Opens a run for each scenario; returns the description of each before it begins. */
  open(module, { scenarios }) {
    for (let lane = 0; lane < lanes; lane++) module.close(lane);
    lanes = scenarios.length;
    return scenarios.map((scenario, lane) => {
      const bytes = text.write.encode(JSON.stringify(scenario));
      const place = module.room(bytes.length);
      new Uint8Array(module.memory.buffer, place, bytes.length).set(bytes);
      const told = answer(module, module.open(lane));
      if (told.error) throw new Error(told.error);
      return told;
    });
  },

  /** Simulates until `at` seconds; returns the frame of each run, and its results if requested. */
  advance(module, { at, results }) {
    const frames = Array.from({ length: lanes }, (_, lane) => numbers(module, module.advance(lane, at)));
    const told = results ? frames.map((_, lane) => answer(module, module.results(lane))) : null;
    return { frames, results: told };
  },

  window(module, { bytes }) {
    module.set_window(bytes);
    return null;
  },
};

let broken = null;
onmessage = async ({ data }) => {
  try {
    const module = await loaded;
    if (broken) throw broken;
    const told = does[data.what](module, data);
    postMessage({ id: data.id, told }, told?.frames ? told.frames.map((frame) => frame.buffer) : []);
  } catch (error) {
    // After a trap the module's memory may be corrupt; a reloaded page has a new one.
    if (error instanceof WebAssembly.RuntimeError) broken = new Error(`the simulator failed (${error.message}); reload the page`);
    postMessage({ id: data.id, problem: (broken ?? error).message });
  }
};
