//! Invariants of any bytes read as a capture, or as the output of `iperf3 -J`.

use verus_capture::analysis::{FlowReport, analyze};
use verus_capture::iperf3;

/// Reads `bytes` as a capture and as iperf3's JSON.
///
/// # Panics
/// If a report contradicts itself.
pub fn check(bytes: &[u8]) {
    if let Ok(report) = analyze("bytes", bytes) {
        let with_data: u64 = report.flows.iter().map(|flow| flow.packets).sum();
        let left_out = report.other_packets + report.unfollowed_packets + report.copied_packets;
        assert!(with_data + left_out <= report.packets);
        assert!(
            report
                .flows
                .is_sorted_by_key(|flow| std::cmp::Reverse(flow.bytes))
        );
        report.flows.iter().for_each(check_flow);
    }
    if let Ok(flows) = iperf3::analyze("bytes", bytes) {
        flows.iter().for_each(check_flow);
    }
}

fn check_flow(flow: &FlowReport) {
    assert!(flow.duration_s >= 0.0);
    let again = [flow.retransmitted, flow.late, flow.reordered];
    if flow.packets > 0 {
        assert!(again.iter().flatten().sum::<u64>() <= flow.packets);
    }
    if let (Some(least), Some(p95)) = (flow.rtt_min_ms, flow.rtt_p95_ms) {
        // The quantiles have three digits.
        assert!(least <= p95 * 1.001 + 0.001, "{least} ms, {p95} ms");
    }
    if let Some(loss_rate) = flow.loss_rate {
        assert!((0.0..=1.0).contains(&loss_rate), "{loss_rate}");
    }
    let shares = [
        flow.path_share,
        flow.window_share,
        flow.sender_share,
        flow.window_or_sender_share,
    ];
    assert!(shares.iter().flatten().sum::<f64>() <= 1.000_001);
    if let Ok(trace) = flow.trace("trace") {
        assert!(trace.opportunities().is_sorted());
    }
}
