//! `--netem` and `--up-netem`: options of Linux's netem in place of ours.

use verus_channel::netem::Netem;
use verus_channel::path::jitter::JitterConfig;
use verus_channel::path::loss_model::LossModelConfig;
use verus_channel::path::reorder::ReorderConfig;

use super::{Args, DELAY_MS, QUEUE, Queue, SEED, queue};
use crate::failure::Failure;

/// The arguments of one direction that a netem sets.
struct Direction<'a> {
    /// Prefix of the names of its options.
    way: &'static str,
    channel_option: &'static str,
    channel: &'a mut Option<String>,
    queue: &'a mut Option<Queue>,
    loss: &'a mut f64,
    loss_model: &'a mut LossModelConfig,
    duplicate: &'a mut f64,
    corrupt: &'a mut f64,
    jitter: &'a mut JitterConfig,
    reorder: &'a mut ReorderConfig,
    seed: &'a mut u64,
}

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
    let mut seeds = [args.seed; 2];
    let [seed_down, seed_up] = &mut seeds;
    let directions = [
        Direction {
            way: "",
            channel_option: "down",
            channel: &mut args.down,
            queue: &mut queue_down,
            loss: &mut args.loss,
            loss_model: &mut args.loss_model,
            duplicate: &mut args.duplicate,
            corrupt: &mut args.corrupt,
            jitter: &mut args.jitter,
            reorder: &mut args.reorder,
            seed: seed_down,
        },
        Direction {
            way: "up-",
            channel_option: "up",
            channel: &mut args.up,
            queue: &mut args.up_queue,
            loss: &mut args.up_loss,
            loss_model: &mut args.up_loss_model,
            duplicate: &mut args.up_duplicate,
            corrupt: &mut args.up_corrupt,
            jitter: &mut args.up_jitter,
            reorder: &mut args.up_reorder,
            seed: seed_up,
        },
    ];
    for (mut direction, netem) in directions.into_iter().zip(&netems) {
        if let Some(netem) = netem {
            direction.take(netem, &mut options)?;
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
    let delays = netems.map(|netem| netem.and_then(|netem| netem.delay_ms));
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

impl Direction<'_> {
    /// Takes what `netem` says but its delay, and adds it to `options`.
    fn take(&mut self, netem: &Netem, options: &mut Vec<String>) -> Result<(), Failure> {
        for (field, value) in netem.settings() {
            let option = match field {
                "delay_ms" => continue,
                "trace" => format!("--{}", self.channel_option),
                "seed" => "--seed".to_owned(),
                field => format!("--{}{}", self.way, field.replace('_', "-")),
            };
            let rate = netem.link.map(|(mbps, _)| format!("rate:{mbps}"));
            let limit = netem.queue().as_deref().map(queue).transpose();
            let limit = limit.map_err(Failure::usage)?;
            let fresh = match field {
                "trace" => set(self.channel, None, Some(rate)),
                "queue" if self.queue.is_some() => false,
                "queue" => {
                    *self.queue = limit;
                    true
                }
                "loss" => set(self.loss, 0.0, netem.loss),
                "loss_model" => set(self.loss_model, LossModelConfig::None, netem.loss_model),
                "duplicate" => set(self.duplicate, 0.0, netem.duplicate),
                "corrupt" => set(self.corrupt, 0.0, netem.corrupt),
                "jitter" => set(self.jitter, JitterConfig::None, netem.jitter),
                "reorder" => set(self.reorder, ReorderConfig::None, netem.reorder),
                "seed" => set(self.seed, SEED, netem.seed),
                field => unreachable!("netem sets no {field}"),
            };
            if !fresh {
                return Err(given_too(&option));
            }
            options.push(format!("{option} {value}"));
        }
        Ok(())
    }
}

/// Puts `value` in place of the default; returns whether the slot had its default.
fn set<T: PartialEq>(slot: &mut T, default: T, value: Option<T>) -> bool {
    let fresh = *slot == default;
    if let Some(value) = value.filter(|_| fresh) {
        *slot = value;
    }
    fresh
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
        assert_eq!((args.loss, args.up_loss), (0.0, 0.01));
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
