//! `--netem` and `--up-netem`: options of Linux's netem in place of ours.

use verus_channel::netem::Setting;
use verus_channel::path_spec::{FIELDS, PathSpec};

use super::{Args, DELAY_MS, QUEUE, SEED, fields, queue};
use crate::failure::Failure;

/// The arguments with what their netems say in our options, and these options as typed.
///
/// # Errors
/// If an option is given beside a netem that sets it.
pub fn translated(args: &Args) -> Result<(Args, Option<String>), Failure> {
    let mut args = args.clone();
    let netems = [args.netem.clone(), args.up_netem.clone()];
    if netems == [None, None] {
        return Ok((args, None));
    }
    let mut options = Vec::new();
    let mut queue_down = (args.queue.text != QUEUE).then(|| args.queue.clone());
    let (mut seeds, mut delays) = ([args.seed; 2], [None; 2]);
    let [down, up] = &mut args.fields.0;
    let directions = [
        ("down", "", &mut args.down, &mut queue_down, down),
        ("up", "up-", &mut args.up, &mut args.up_queue, up),
    ];
    let numbers = seeds.iter_mut().zip(&mut delays);
    for ((netem, (seed, delay_ms)), (link, way, channel, queue_given, spec)) in
        netems.into_iter().zip(numbers).zip(directions)
    {
        for (name, value) in netem.into_iter().flat_map(|netem| netem.settings) {
            let text = value.to_string();
            let option = match name {
                "trace" => link.to_owned(),
                "seed" => name.to_owned(),
                _ => fields::option(way, name),
            };
            let fresh = match (name, value) {
                ("delay_ms", Setting::Number(number)) => {
                    *delay_ms = Some(number);
                    continue;
                }
                ("seed", Setting::Whole(number)) => std::mem::replace(seed, number) == SEED,
                ("trace", _) => channel.replace(text.clone()).is_none(),
                ("queue", _) => {
                    let limit = queue(&text).map_err(Failure::usage)?;
                    queue_given.replace(limit).is_none()
                }
                _ => {
                    let field = FIELDS.iter().find(|field| field.name == name);
                    let field = field.unwrap_or_else(|| unreachable!("netem sets no {name}"));
                    let fresh = (field.get)(spec) == (field.get)(&PathSpec::default());
                    let set = (field.set)(spec, &text, None);
                    set.map_err(|error| Failure::usage(error.to_string()))?;
                    fresh
                }
            };
            if !fresh {
                return Err(given_too(&format!("--{option}")));
            }
            options.push(format!("--{option} {text}"));
        }
    }
    if let Some(queue) = queue_down {
        // The queue of the other direction is as that of this one was typed.
        args.up_queue.get_or_insert(args.queue.clone());
        args.queue = queue;
    }
    args.seed = match seeds {
        [seed, other] if seed == other => seed,
        [SEED, seed] | [seed, SEED] => seed,
        _ => return Err(Failure::usage("--netem and --up-netem name two seeds")),
    };
    if delays != [None, None] {
        if args.delay_ms != DELAY_MS || args.up_delay_ms.is_some() || args.delay_series.is_some() {
            return Err(given_too("--delay-ms"));
        }
        // A netem delays one direction.
        let [down, up] = delays.map(|delay_ms| delay_ms.unwrap_or(0.0));
        (args.delay_ms, args.up_delay_ms) = (down, Some(up));
        options.push(format!("--delay-ms {down} --up-delay-ms {up}"));
    }
    Ok((args, Some(options.join(" "))))
}

fn given_too(option: &str) -> Failure {
    Failure::usage(format_args!(
        "netem sets {option}, which is given too: leave one of them out"
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn shown(words: &[&str]) -> Result<(Args, String), String> {
        let line = Line::parse_from([&["shell"], words].concat());
        match translated(&line.args) {
            Ok((args, options)) => Ok((args, options.unwrap_or_default())),
            Err(failure) => Err(format!("{failure:?}")),
        }
    }

    #[test]
    fn netems_of_both_directions_are_options_of_ours() {
        let (args, options) = shown(&[
            "--netem",
            "rate 10mbit delay 20ms 5ms loss gemodel 1% 10%",
            "--up-netem",
            "loss 1% duplicate 2%",
        ])
        .expect("valid");
        assert_eq!(
            options,
            "--down rate:10 --queue droptail:packets=1000 --loss-model gemodel:p=0.01,r=0.1,1-h=1,1-k=0 \
             --jitter uniform:max_ms=10 --up-loss 0.01 --up-duplicate 0.02 --delay-ms 15 --up-delay-ms 0"
        );
        let losses = args
            .fields
            .0
            .each_ref()
            .map(|spec| spec.path.loss.steps()[0].1);
        assert_eq!(losses, [0.0, 0.01]);
        let [up, down] = args.directions().expect("valid");
        assert_eq!(up.path.delays[0].steps()[0].1, verus_core::Duration::ZERO);
        assert!(up.path.link.is_none() && down.path.link.is_some());
        // The printed options, typed, give the same paths.
        let words: Vec<&str> = options.split(' ').collect();
        let typed = Line::parse_from([&["shell"], &words[..]].concat()).args;
        let [typed_up, typed_down] = typed.directions().expect("valid");
        assert_eq!((typed_up.path, typed_down.path), (up.path, down.path));
    }

    #[test]
    fn what_a_netem_sets_is_not_given_too() {
        for (words, option) in [
            (["--netem", "loss 1%", "--loss", "0.1"], "--loss"),
            (["--netem", "rate 1mbit", "--down", "rate:2"], "--down"),
            (["--netem", "delay 9ms", "--delay-ms", "3"], "--delay-ms"),
            (["--netem", "rate 1mbit", "--queue", "codel"], "--queue"),
        ] {
            let problem = shown(&words).err().expect("refused");
            let expected =
                format!("netem sets {option}, which is given too: leave one of them out");
            assert!(problem.contains(&expected), "{problem}");
        }
        let (args, options) = shown(&["--down", "rate:1", "--delay-ms", "3"]).expect("valid");
        assert_eq!((args.delay_ms, options.as_str()), (3.0, ""));
    }
}
