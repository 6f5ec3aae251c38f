//! The cost of a packet as the work grows: more flows, faster links, longer runs, other senders.
//!
//! `cargo bench -p verus-sim --bench growth` prints the table of BENCHMARKS.md. Each cell is a
//! separate process, so that its peak memory can be measured; the memory held before the run is
//! subtracted. The median of three runs counts.

// A benchmark reads clocks; that is all it does.
#![allow(clippy::disallowed_methods)]

use std::process::Command;

use rustix::time::{ClockId, clock_gettime};
use verus_senders as algorithm;
use verus_sim::{FlowSpec, Scenario};

/// A cell of the table: flows of one scheme over a constant rate, 20 ms each way, drop-tail of one bandwidth-delay product.
#[derive(Clone, Debug)]
struct Cell {
    scheme: String,
    flows: usize,
    mbps: u64,
    duration_s: u64,
}

/// The cost of a run.
#[derive(Clone, Copy)]
struct Cost {
    packets: f64,
    cpu_ns: f64,
    memory_kb: f64,
}

fn cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The most memory that this process has held, kB.
fn most_memory_kb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kb.expect("VmHWM in kB")
}

impl Cell {
    fn scenario(&self) -> Scenario {
        let mut flow = FlowSpec::new(&self.scheme);
        if self.scheme == "constant" {
            flow.scheme = format!(
                "constant:rate_mbps={}",
                self.mbps as f64 / self.flows as f64
            );
        }
        Scenario {
            trace: format!("rate:{}", self.mbps),
            queue: format!("droptail:bytes={}", self.mbps * 5_000),
            flows: vec![flow; self.flows],
            duration_s: self.duration_s as f64,
            series: false,
            ..Scenario::default()
        }
    }

    /// Runs it in this process and prints its cost.
    fn run(&self) {
        let plan = self.scenario().plan().expect("the cell is valid");
        let (cpu, memory) = (cpu_nanos(), most_memory_kb());
        let outcome = plan.run(&mut |_| true).expect("nobody cancels");
        let (cpu, memory) = (cpu_nanos() - cpu, most_memory_kb() - memory);
        println!("{} {cpu} {memory}", outcome.metrics.arrivals);
    }

    /// Runs it in separate processes.
    fn cost(&self) -> Cost {
        let mut costs: Vec<Cost> = (0..3).map(|_| self.cost_once()).collect();
        costs.sort_by(|a, b| a.cpu_ns.total_cmp(&b.cpu_ns));
        costs[1]
    }

    fn cost_once(&self) -> Cost {
        let numbers = [self.flows as u64, self.mbps, self.duration_s];
        let output = Command::new(std::env::current_exe().expect("this program"))
            .arg("--cell")
            .arg(&self.scheme)
            .args(numbers.map(|number| number.to_string()))
            .output()
            .expect("the program runs again");
        assert!(output.status.success(), "{self:?} failed");
        let text = String::from_utf8(output.stdout).expect("numbers");
        let numbers: Vec<f64> = (text.split_whitespace())
            .map(|word| word.parse().expect("a number"))
            .collect();
        let [packets, cpu_ns, memory_kb] = numbers[..] else {
            panic!("three numbers, not `{text}`")
        };
        Cost {
            packets,
            cpu_ns,
            memory_kb,
        }
    }
}

/// Prints a line for each cell, and how far apart the costs of a packet are.
fn table(title: &str, cells: &[Cell]) {
    println!("| {title} | flows | Mbit/s | s | packets | ns a packet | memory, kB | kB a flow |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut each = Vec::new();
    for cell in cells {
        let cost = cell.cost();
        let nanos = cost.cpu_ns / cost.packets;
        each.push(nanos);
        println!(
            "| {} | {} | {} | {} | {} | {nanos:.0} | {} | {:.0} |",
            cell.scheme,
            cell.flows,
            cell.mbps,
            cell.duration_s,
            cost.packets,
            cost.memory_kb,
            cost.memory_kb / cell.flows as f64,
        );
    }
    let (least, most) = each
        .iter()
        .fold((f64::MAX, 0.0_f64), |(least, most), &nanos| {
            (least.min(nanos), most.max(nanos))
        });
    println!("\nFrom the least to the most: {:.2} times.\n", most / least);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let cell = |scheme: &str, flows, mbps, duration_s| Cell {
        scheme: scheme.to_owned(),
        flows,
        mbps,
        duration_s,
    };
    if let [first, scheme, numbers @ ..] = &arguments[..]
        && first == "--cell"
    {
        let numbers: Vec<u64> = (numbers.iter())
            .map(|number| number.parse().expect("a number"))
            .collect();
        return cell(scheme, numbers[0] as usize, numbers[1], numbers[2]).run();
    }
    for scheme in ["cubic", "verus"] {
        let flows = [1, 10, 100, 1000].map(|flows| cell(scheme, flows, 1_000, 20));
        table("more flows", &flows);
        let rates = [(10, 600), (100, 60), (1_000, 20), (10_000, 10)];
        table(
            "more rate",
            &rates.map(|(mbps, s)| cell(scheme, 1, mbps, s)),
        );
        let times = [60, 600, 6_000];
        table(
            "more time",
            &times.map(|duration_s| cell(scheme, 1, 10, duration_s)),
        );
    }
    let senders: Vec<Cell> = algorithm::catalogue()
        .iter()
        .filter(|entry| entry.stands_alone())
        .map(|entry| cell(entry.name, 1, 10_000, 10))
        .collect();
    table("every sender", &senders);
}
