//! The parameters of the built-in channels.
//!
//! First what the recordings give, a [`Fit`] each, made by the `calibrate` example; then the
//! channels, a row each. A scenario that was recorded takes the whole fit. The others join parts:
//! what moves and what stands in the way decides the slow part ([`super::Radio`]), the technology
//! decides the fast part ([`super::Scheduler`]).
//!
//! Sources of the recordings, by folder: `verus-2015`, the Verus authors' (Zaki et al., SIGCOMM
//! 2015; technology not stated; 2 to 5 Mbit/s taken as 3G, 16 to 18 as LTE); `mahimahi`, Winstein
//! et al. (NSDI 2013), distributed with Mahimahi; `cs244-2017`, Mahimahi's AT&T LTE recording of
//! 2016 as used by the CS244 reproduction; `nyc-2018`, C2TCP's, and `nyc-2019`, Orca's recordings
//! in New York City (Abbasloo et al.). The recorded figures are facts about those files.

use super::{
    Channel, Direction, Figures, Model, Radio, Recording, Scenario, Scheduler, Swing, Technology,
};

/// A recording and the parameters that reproduce it.
struct Fit {
    recording: Recording,
    model: Model,
}

impl Fit {
    /// The whole fit as a channel.
    const fn whole(&'static self) -> Source {
        Source {
            model: self.model,
            recording: Some(&self.recording),
        }
    }

    /// This fit's slow part with another's fast part, at another mean rate.
    const fn with(&'static self, fast: &'static Fit, mean_mbps: f64) -> Source {
        let model = Model {
            mean_mbps,
            radio: self.model.radio,
            scheduler: fast.model.scheduler,
        };
        Source {
            model,
            recording: None,
        }
    }
}

/// What a row of the table is made of.
struct Source {
    model: Model,
    recording: Option<&'static Recording>,
}

const fn row(
    name: &'static str,
    place: (Scenario, Technology, Direction),
    source: Source,
    basis: &'static str,
) -> Channel {
    let (scenario, technology, direction) = place;
    let Source { model, recording } = source;
    Channel {
        name,
        scenario,
        technology,
        direction,
        model,
        recording,
        basis,
    }
}

use Direction::{Down, Up};
use Scenario::*;
use Technology::{Lte, ThreeG};

/// The built-in channels: the seven mobility scenarios of the paper's §5.3, 3G and LTE, both
/// directions.
pub static CHANNELS: [Channel; 28] = [
    // Campus, standing still.
    row(
        "campus-stationary-3g-down",
        (CampusStationary, ThreeG, Down),
        NYC_HOME.with(&NYC_TIMES_SQUARE_3G, 5.0),
        "no recording: slow part of an LTE phone at home (the only stationary one), fast part of a 3G downlink (Times Square), the paper's 5 Mbit/s",
    ),
    row(
        "campus-stationary-3g-up",
        (CampusStationary, ThreeG, Up),
        NYC_HOME.with(&CAMPUS_PEDESTRIAN_UP, 2.5),
        "no recording: slow part of an LTE phone at home, fast part of the campus uplink, the paper's 2.5 Mbit/s",
    ),
    row(
        "campus-stationary-lte-down",
        (CampusStationary, Lte, Down),
        NYC_HOME.with(&CAMPUS_PEDESTRIAN_DOWN, 18.4),
        "no recording: slow part of an LTE phone at home, fast part and rate of the campus downlink",
    ),
    row(
        "campus-stationary-lte-up",
        (CampusStationary, Lte, Up),
        NYC_HOME.with(&VERIZON_LTE_UP, 6.0),
        "no recording: slow part of an LTE phone at home, fast part and rate of Verizon's LTE uplink",
    ),
    // Campus, on foot.
    row(
        "campus-pedestrian-3g-down",
        (CampusPedestrian, ThreeG, Down),
        CAMPUS_PEDESTRIAN_UP.with(&NYC_TIMES_SQUARE_3G, 3.7),
        "slow part of the authors' campus uplink at twice its rate (the paper drives 3G at 5 down, 2.5 up), fast part of a 3G downlink (Times Square)",
    ),
    row(
        "campus-pedestrian-3g-up",
        (CampusPedestrian, ThreeG, Up),
        CAMPUS_PEDESTRIAN_UP.whole(),
        "the authors' campus uplink; at 1.8 Mbit/s taken as 3G",
    ),
    row(
        "campus-pedestrian-lte-down",
        (CampusPedestrian, Lte, Down),
        CAMPUS_PEDESTRIAN_DOWN.whole(),
        "the authors' campus downlink; at 18 Mbit/s taken as LTE",
    ),
    row(
        "campus-pedestrian-lte-up",
        (CampusPedestrian, Lte, Up),
        CAMPUS_PEDESTRIAN_UP.with(&VERIZON_LTE_UP, 6.0),
        "slow part of the authors' campus uplink, fast part and rate of Verizon's LTE uplink",
    ),
    // City, standing still.
    row(
        "city-stationary-3g-down",
        (CityStationary, ThreeG, Down),
        NYC_TIMES_SQUARE_3G.whole(),
        "a 3G downlink on Times Square, the steadiest 3G downlink there is, though on foot",
    ),
    row(
        "city-stationary-3g-up",
        (CityStationary, ThreeG, Up),
        NYC_TIMES_SQUARE_3G.with(&TMOBILE_UMTS_UP, 2.2),
        "no recording: slow part of the 3G downlink on Times Square at half its rate, fast part of T-Mobile's UMTS uplink",
    ),
    row(
        "city-stationary-lte-down",
        (CityStationary, Lte, Down),
        NYC_HOME.whole(),
        "an LTE phone at home in New York, the only stationary recording",
    ),
    row(
        "city-stationary-lte-up",
        (CityStationary, Lte, Up),
        NYC_HOME.with(&VERIZON_LTE_UP, 8.0),
        "no recording: slow part of an LTE phone at home at half its rate, fast part of Verizon's LTE uplink",
    ),
    // City, slow driving with signals.
    row(
        "city-driving-3g-down",
        (CityDriving, ThreeG, Down),
        CITY_DRIVING_UP.with(&TMOBILE_UMTS_DOWN, 5.0),
        "slow part of the authors' city uplink, fast part of T-Mobile's UMTS downlink, the paper's 5 Mbit/s",
    ),
    row(
        "city-driving-3g-up",
        (CityDriving, ThreeG, Up),
        CITY_DRIVING_UP.whole(),
        "the authors' city uplink; at 4 Mbit/s taken as 3G",
    ),
    row(
        "city-driving-lte-down",
        (CityDriving, Lte, Down),
        CITY_DRIVING_DOWN.whole(),
        "the authors' city downlink; at 16 Mbit/s taken as LTE",
    ),
    row(
        "city-driving-lte-up",
        (CityDriving, Lte, Up),
        ATT_LTE_2016_UP.whole(),
        "AT&T's LTE uplink of 2016, driving: a hard one, silent for a fifth of the time",
    ),
    // Highway.
    row(
        "highway-driving-3g-down",
        (HighwayDriving, ThreeG, Down),
        HIGHWAY_DRIVING_UP.with(&NYC_TIMES_SQUARE_3G, 5.0),
        "slow part of the authors' highway uplink, fast part of a 3G downlink (Times Square), the paper's 5 Mbit/s",
    ),
    row(
        "highway-driving-3g-up",
        (HighwayDriving, ThreeG, Up),
        HIGHWAY_DRIVING_UP.whole(),
        "the authors' highway uplink; at 5 Mbit/s taken as 3G",
    ),
    row(
        "highway-driving-lte-down",
        (HighwayDriving, Lte, Down),
        HIGHWAY_DRIVING_DOWN.whole(),
        "the authors' highway downlink; at 16 Mbit/s taken as LTE",
    ),
    row(
        "highway-driving-lte-up",
        (HighwayDriving, Lte, Up),
        VERIZON_LTE_UP.whole(),
        "Verizon's LTE uplink, driving",
    ),
    // Shopping mall: under concrete, among people. The subway is the nearest recording, and hard.
    row(
        "shopping-mall-3g-down",
        (ShoppingMall, ThreeG, Down),
        NYC_SUBWAY_3G_DOWN.whole(),
        "no mall recording: a 3G downlink in the New York subway, underground and crowded",
    ),
    row(
        "shopping-mall-3g-up",
        (ShoppingMall, ThreeG, Up),
        NYC_SUBWAY_3G_UP.whole(),
        "no mall recording: a 3G uplink in the New York subway, underground and crowded",
    ),
    row(
        "shopping-mall-lte-down",
        (ShoppingMall, Lte, Down),
        NYC_SUBWAY_LTE.whole(),
        "no mall recording: a 4G downlink in the New York subway, underground and crowded",
    ),
    row(
        "shopping-mall-lte-up",
        (ShoppingMall, Lte, Up),
        NYC_SUBWAY_LTE.with(&ATT_LTE_2016_UP, 4.0),
        "no recording: slow part of the 4G subway downlink, fast part of AT&T's LTE uplink of 2016",
    ),
    // City waterfront: cells on one side only. 3G far from the mast, LTE on foot in the open.
    row(
        "city-waterfront-3g-down",
        (CityWaterfront, ThreeG, Down),
        TMOBILE_UMTS_DOWN.whole(),
        "no waterfront recording: T-Mobile's UMTS downlink, whose coverage comes and goes",
    ),
    row(
        "city-waterfront-3g-up",
        (CityWaterfront, ThreeG, Up),
        TMOBILE_UMTS_UP.whole(),
        "no waterfront recording: T-Mobile's UMTS uplink, whose coverage comes and goes",
    ),
    row(
        "city-waterfront-lte-down",
        (CityWaterfront, Lte, Down),
        NYC_TIMES_SQUARE_LTE.whole(),
        "no waterfront recording: an LTE walk on Times Square, the longest walk there is",
    ),
    row(
        "city-waterfront-lte-up",
        (CityWaterfront, Lte, Up),
        NYC_TIMES_SQUARE_LTE.with(&VERIZON_LTE_UP, 6.0),
        "no recording: slow part of an LTE walk on Times Square, fast part and rate of Verizon's LTE uplink",
    ),
];

const CAMPUS_PEDESTRIAN_DOWN: Fit = Fit {
    recording: Recording {
        name: "verus-2015/campus-pedestrian.down",
        duration_s: 316.852,
        figures: Figures {
            mean_mbps: 18.398,
            cv_20ms: 0.504,
            cv_100ms: 0.293,
            cv_1s: 0.168,
            acf_100ms_lag1: 0.403,
            acf_100ms_lag5: 0.114,
            acf_100ms_lag50: 0.095,
            outages_per_min: 0.0,
        },
    },
    model: Model {
        mean_mbps: 18.398,
        radio: Radio {
            fading: Swing {
                sd: 0.544,
                time_ms: 111.0,
            },
            shadowing: Swing {
                sd: 0.197,
                time_ms: 2410.0,
            },
            coverage: Swing {
                sd: 0.275,
                time_ms: 15300.0,
            },
            snr: 8.19,
            outages_per_min: [0.0, 0.0, 0.0, 0.0],
            longest_outage_ms: 61.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 3.6,
            burst_spread: 0.871,
            gap_spread: 0.557,
            pause_share: 0.0987,
            pause_ms: 4.63,
            elasticity: 0.57,
        },
    },
};

const CAMPUS_PEDESTRIAN_UP: Fit = Fit {
    recording: Recording {
        name: "verus-2015/campus-pedestrian.up",
        duration_s: 392.3,
        figures: Figures {
            mean_mbps: 1.842,
            cv_20ms: 0.528,
            cv_100ms: 0.335,
            cv_1s: 0.271,
            acf_100ms_lag1: 0.642,
            acf_100ms_lag5: 0.583,
            acf_100ms_lag50: 0.26,
            outages_per_min: 0.459,
        },
    },
    model: Model {
        mean_mbps: 1.842,
        radio: Radio {
            fading: Swing {
                sd: 0.0732,
                time_ms: 46.0,
            },
            shadowing: Swing {
                sd: 0.421,
                time_ms: 5810.0,
            },
            coverage: Swing {
                sd: 0.12,
                time_ms: 39600.0,
            },
            snr: 1.34,
            outages_per_min: [0.333, 0.0, 0.0, 0.0],
            longest_outage_ms: 114.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 0.671,
            burst_spread: 0.607,
            gap_spread: 0.405,
            pause_share: 0.455,
            pause_ms: 5.83,
            elasticity: 0.16,
        },
    },
};

const CITY_DRIVING_DOWN: Fit = Fit {
    recording: Recording {
        name: "verus-2015/city-driving.down",
        duration_s: 336.592,
        figures: Figures {
            mean_mbps: 16.472,
            cv_20ms: 0.583,
            cv_100ms: 0.434,
            cv_1s: 0.375,
            acf_100ms_lag1: 0.749,
            acf_100ms_lag5: 0.71,
            acf_100ms_lag50: 0.536,
            outages_per_min: 0.357,
        },
    },
    model: Model {
        mean_mbps: 16.472,
        radio: Radio {
            fading: Swing {
                sd: 0.23,
                time_ms: 496.0,
            },
            shadowing: Swing {
                sd: 0.299,
                time_ms: 4160.0,
            },
            coverage: Swing {
                sd: 0.874,
                time_ms: 47700.0,
            },
            snr: 4.22,
            outages_per_min: [0.32, 0.197, 0.0, 0.0],
            longest_outage_ms: 368.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 3.16,
            burst_spread: 0.295,
            gap_spread: 0.617,
            pause_share: 0.495,
            pause_ms: 6.86,
            elasticity: 0.47,
        },
    },
};

const CITY_DRIVING_UP: Fit = Fit {
    recording: Recording {
        name: "verus-2015/city-driving.up",
        duration_s: 397.373,
        figures: Figures {
            mean_mbps: 3.962,
            cv_20ms: 0.59,
            cv_100ms: 0.483,
            cv_1s: 0.438,
            acf_100ms_lag1: 0.834,
            acf_100ms_lag5: 0.789,
            acf_100ms_lag50: 0.62,
            outages_per_min: 0.302,
        },
    },
    model: Model {
        mean_mbps: 3.962,
        radio: Radio {
            fading: Swing {
                sd: 0.295,
                time_ms: 637.0,
            },
            shadowing: Swing {
                sd: 0.285,
                time_ms: 4470.0,
            },
            coverage: Swing {
                sd: 0.947,
                time_ms: 50100.0,
            },
            snr: 3.53,
            outages_per_min: [0.227, 0.0694, 0.0, 0.0],
            longest_outage_ms: 220.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 1.27,
            burst_spread: 0.297,
            gap_spread: 0.589,
            pause_share: 0.458,
            pause_ms: 6.33,
            elasticity: 0.19,
        },
    },
};

const HIGHWAY_DRIVING_DOWN: Fit = Fit {
    recording: Recording {
        name: "verus-2015/highway-driving.down",
        duration_s: 315.889,
        figures: Figures {
            mean_mbps: 16.063,
            cv_20ms: 0.721,
            cv_100ms: 0.492,
            cv_1s: 0.408,
            acf_100ms_lag1: 0.685,
            acf_100ms_lag5: 0.625,
            acf_100ms_lag50: 0.499,
            outages_per_min: 1.14,
        },
    },
    model: Model {
        mean_mbps: 16.063,
        radio: Radio {
            fading: Swing {
                sd: 0.0958,
                time_ms: 177.0,
            },
            shadowing: Swing {
                sd: 0.139,
                time_ms: 1740.0,
            },
            coverage: Swing {
                sd: 0.479,
                time_ms: 49500.0,
            },
            snr: 0.218,
            outages_per_min: [0.526, 0.242, 0.0, 0.0],
            longest_outage_ms: 235.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 3.32,
            burst_spread: 0.837,
            gap_spread: 1.0,
            pause_share: 0.0744,
            pause_ms: 8.4,
            elasticity: 0.26,
        },
    },
};

const HIGHWAY_DRIVING_UP: Fit = Fit {
    recording: Recording {
        name: "verus-2015/highway-driving.up",
        duration_s: 385.511,
        figures: Figures {
            mean_mbps: 4.994,
            cv_20ms: 0.453,
            cv_100ms: 0.368,
            cv_1s: 0.312,
            acf_100ms_lag1: 0.791,
            acf_100ms_lag5: 0.65,
            acf_100ms_lag50: 0.417,
            outages_per_min: 0.467,
        },
    },
    model: Model {
        mean_mbps: 4.994,
        radio: Radio {
            fading: Swing {
                sd: 0.532,
                time_ms: 383.0,
            },
            shadowing: Swing {
                sd: 0.234,
                time_ms: 4340.0,
            },
            coverage: Swing {
                sd: 0.838,
                time_ms: 21400.0,
            },
            snr: 10.4,
            outages_per_min: [0.34, 0.0, 0.0, 0.0],
            longest_outage_ms: 145.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 1.46,
            burst_spread: 0.264,
            gap_spread: 0.513,
            pause_share: 0.0764,
            pause_ms: 10.9,
            elasticity: 0.09,
        },
    },
};

const NYC_HOME: Fit = Fit {
    recording: Recording {
        name: "nyc-2019/trace-3093662-home3",
        duration_s: 267.219,
        figures: Figures {
            mean_mbps: 16.049,
            cv_20ms: 0.25,
            cv_100ms: 0.204,
            cv_1s: 0.127,
            acf_100ms_lag1: 0.531,
            acf_100ms_lag5: 0.341,
            acf_100ms_lag50: 0.09,
            outages_per_min: 0.0,
        },
    },
    model: Model {
        mean_mbps: 16.049,
        radio: Radio {
            fading: Swing {
                sd: 0.138,
                time_ms: 398.0,
            },
            shadowing: Swing {
                sd: 0.0992,
                time_ms: 3190.0,
            },
            coverage: Swing {
                sd: 0.0999,
                time_ms: 60700.0,
            },
            snr: 0.492,
            outages_per_min: [0.0, 0.0, 0.0, 0.0],
            longest_outage_ms: 87.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 0.697,
            burst_spread: 0.227,
            gap_spread: 0.259,
            pause_share: 0.0659,
            pause_ms: 16.6,
            elasticity: 0.23,
        },
    },
};

const NYC_TIMES_SQUARE_LTE: Fit = Fit {
    recording: Recording {
        name: "nyc-2019/trace-3205967-timessquare",
        duration_s: 367.439,
        figures: Figures {
            mean_mbps: 12.405,
            cv_20ms: 0.585,
            cv_100ms: 0.496,
            cv_1s: 0.375,
            acf_100ms_lag1: 0.714,
            acf_100ms_lag5: 0.489,
            acf_100ms_lag50: 0.156,
            outages_per_min: 0.816,
        },
    },
    model: Model {
        mean_mbps: 12.405,
        radio: Radio {
            fading: Swing {
                sd: 0.714,
                time_ms: 66.9,
            },
            shadowing: Swing {
                sd: 0.74,
                time_ms: 4250.0,
            },
            coverage: Swing {
                sd: 0.206,
                time_ms: 19500.0,
            },
            snr: 2.38,
            outages_per_min: [0.852, 0.138, 0.138, 0.138],
            longest_outage_ms: 5152.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 0.704,
            burst_spread: 0.413,
            gap_spread: 0.445,
            pause_share: 0.133,
            pause_ms: 9.48,
            elasticity: 0.17,
        },
    },
};

const NYC_TIMES_SQUARE_3G: Fit = Fit {
    recording: Recording {
        name: "nyc-2018/downlink-3g-with-cross-times-1",
        duration_s: 207.585,
        figures: Figures {
            mean_mbps: 4.309,
            cv_20ms: 0.45,
            cv_100ms: 0.322,
            cv_1s: 0.264,
            acf_100ms_lag1: 0.74,
            acf_100ms_lag5: 0.577,
            acf_100ms_lag50: 0.16,
            outages_per_min: 1.734,
        },
    },
    model: Model {
        mean_mbps: 4.309,
        radio: Radio {
            fading: Swing {
                sd: 0.122,
                time_ms: 72.0,
            },
            shadowing: Swing {
                sd: 0.255,
                time_ms: 2590.0,
            },
            coverage: Swing {
                sd: 0.245,
                time_ms: 32600.0,
            },
            snr: 1.04,
            outages_per_min: [1.86, 1.46, 0.729, 0.729],
            longest_outage_ms: 2242.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 1.37,
            burst_spread: 0.242,
            gap_spread: 0.38,
            pause_share: 0.343,
            pause_ms: 7.48,
            elasticity: 0.16,
        },
    },
};

const NYC_SUBWAY_LTE: Fit = Fit {
    recording: Recording {
        name: "nyc-2018/downlink-4g-with-cross-subway.pps",
        duration_s: 697.703,
        figures: Figures {
            mean_mbps: 10.172,
            cv_20ms: 0.885,
            cv_100ms: 0.812,
            cv_1s: 0.728,
            acf_100ms_lag1: 0.867,
            acf_100ms_lag5: 0.759,
            acf_100ms_lag50: 0.394,
            outages_per_min: 28.809,
        },
    },
    model: Model {
        mean_mbps: 10.172,
        radio: Radio {
            fading: Swing {
                sd: 0.128,
                time_ms: 63.9,
            },
            shadowing: Swing {
                sd: 0.829,
                time_ms: 7300.0,
            },
            coverage: Swing {
                sd: 0.268,
                time_ms: 43100.0,
            },
            snr: 0.229,
            outages_per_min: [24.4, 4.79, 0.539, 0.337],
            longest_outage_ms: 2092.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 0.996,
            burst_spread: 0.389,
            gap_spread: 0.316,
            pause_share: 0.174,
            pause_ms: 25.6,
            elasticity: 0.11,
        },
    },
};

const NYC_SUBWAY_3G_DOWN: Fit = Fit {
    recording: Recording {
        name: "nyc-2018/downlink-3g-no-cross-subway.pps",
        duration_s: 243.066,
        figures: Figures {
            mean_mbps: 5.013,
            cv_20ms: 0.855,
            cv_100ms: 0.706,
            cv_1s: 0.602,
            acf_100ms_lag1: 0.786,
            acf_100ms_lag5: 0.642,
            acf_100ms_lag50: 0.46,
            outages_per_min: 19.501,
        },
    },
    model: Model {
        mean_mbps: 5.013,
        radio: Radio {
            fading: Swing {
                sd: 0.14,
                time_ms: 493.0,
            },
            shadowing: Swing {
                sd: 0.178,
                time_ms: 2780.0,
            },
            coverage: Swing {
                sd: 0.679,
                time_ms: 34700.0,
            },
            snr: 0.204,
            outages_per_min: [14.6, 11.1, 4.33, 1.2],
            longest_outage_ms: 1164.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 1.13,
            burst_spread: 0.486,
            gap_spread: 1.13,
            pause_share: 0.0732,
            pause_ms: 3.45,
            elasticity: 0.21,
        },
    },
};

const NYC_SUBWAY_3G_UP: Fit = Fit {
    recording: Recording {
        name: "nyc-2018/uplink-3g-no-cross-subway.pps",
        duration_s: 244.138,
        figures: Figures {
            mean_mbps: 0.709,
            cv_20ms: 1.538,
            cv_100ms: 0.771,
            cv_1s: 0.593,
            acf_100ms_lag1: 0.524,
            acf_100ms_lag5: 0.542,
            acf_100ms_lag50: 0.185,
            outages_per_min: 49.153,
        },
    },
    model: Model {
        mean_mbps: 0.709,
        radio: Radio {
            fading: Swing {
                sd: 0.176,
                time_ms: 621.0,
            },
            shadowing: Swing {
                sd: 0.598,
                time_ms: 3310.0,
            },
            coverage: Swing {
                sd: 0.772,
                time_ms: 19700.0,
            },
            snr: 1.95,
            outages_per_min: [17.8, 8.8, 3.91, 1.56],
            longest_outage_ms: 3410.0,
        },
        scheduler: Scheduler {
            tti_ms: 10,
            burst_packets: 1.14,
            burst_spread: 0.786,
            gap_spread: 0.413,
            pause_share: 0.493,
            pause_ms: 21.7,
            elasticity: 0.21,
        },
    },
};

const TMOBILE_UMTS_DOWN: Fit = Fit {
    recording: Recording {
        name: "mahimahi/TMobile-UMTS-driving.down",
        duration_s: 928.424,
        figures: Figures {
            mean_mbps: 2.02,
            cv_20ms: 0.939,
            cv_100ms: 0.834,
            cv_1s: 0.783,
            acf_100ms_lag1: 0.921,
            acf_100ms_lag5: 0.845,
            acf_100ms_lag50: 0.463,
            outages_per_min: 15.639,
        },
    },
    model: Model {
        mean_mbps: 2.02,
        radio: Radio {
            fading: Swing {
                sd: 0.125,
                time_ms: 502.0,
            },
            shadowing: Swing {
                sd: 0.791,
                time_ms: 6010.0,
            },
            coverage: Swing {
                sd: 1.3,
                time_ms: 11000.0,
            },
            snr: 1.8,
            outages_per_min: [10.3, 10.1, 4.75, 1.95],
            longest_outage_ms: 5753.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 1.36,
            burst_spread: 0.239,
            gap_spread: 0.582,
            pause_share: 0.0565,
            pause_ms: 4.34,
            elasticity: 0.11,
        },
    },
};

const TMOBILE_UMTS_UP: Fit = Fit {
    recording: Recording {
        name: "mahimahi/TMobile-UMTS-driving.up",
        duration_s: 931.233,
        figures: Figures {
            mean_mbps: 0.943,
            cv_20ms: 0.719,
            cv_100ms: 0.527,
            cv_1s: 0.463,
            acf_100ms_lag1: 0.826,
            acf_100ms_lag5: 0.698,
            acf_100ms_lag50: 0.459,
            outages_per_min: 12.693,
        },
    },
    model: Model {
        mean_mbps: 0.943,
        radio: Radio {
            fading: Swing {
                sd: 0.336,
                time_ms: 559.0,
            },
            shadowing: Swing {
                sd: 0.257,
                time_ms: 5500.0,
            },
            coverage: Swing {
                sd: 1.1,
                time_ms: 22800.0,
            },
            snr: 10.2,
            outages_per_min: [11.9, 5.86, 2.93, 1.18],
            longest_outage_ms: 5830.0,
        },
        scheduler: Scheduler {
            tti_ms: 10,
            burst_packets: 0.873,
            burst_spread: 0.215,
            gap_spread: 0.432,
            pause_share: 0.0703,
            pause_ms: 9.1,
            elasticity: 0.04,
        },
    },
};

const VERIZON_LTE_UP: Fit = Fit {
    recording: Recording {
        name: "mahimahi/Verizon-LTE-short.up",
        duration_s: 140.0,
        figures: Figures {
            mean_mbps: 5.946,
            cv_20ms: 0.687,
            cv_100ms: 0.594,
            cv_1s: 0.522,
            acf_100ms_lag1: 0.868,
            acf_100ms_lag5: 0.689,
            acf_100ms_lag50: 0.191,
            outages_per_min: 6.857,
        },
    },
    model: Model {
        mean_mbps: 5.946,
        radio: Radio {
            fading: Swing {
                sd: 0.176,
                time_ms: 305.0,
            },
            shadowing: Swing {
                sd: 0.548,
                time_ms: 4110.0,
            },
            coverage: Swing {
                sd: 0.223,
                time_ms: 11900.0,
            },
            snr: 0.261,
            outages_per_min: [6.17, 2.12, 0.53, 0.53],
            longest_outage_ms: 1718.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 1.29,
            burst_spread: 0.306,
            gap_spread: 0.782,
            pause_share: 0.0725,
            pause_ms: 13.6,
            elasticity: 0.24,
        },
    },
};

const ATT_LTE_2016_UP: Fit = Fit {
    recording: Recording {
        name: "cs244-2017/ATT-LTE-driving-2016.up",
        duration_s: 120.002,
        figures: Figures {
            mean_mbps: 1.91,
            cv_20ms: 1.434,
            cv_100ms: 1.219,
            cv_1s: 0.883,
            acf_100ms_lag1: 0.715,
            acf_100ms_lag5: 0.381,
            acf_100ms_lag50: 0.126,
            outages_per_min: 45.499,
        },
    },
    model: Model {
        mean_mbps: 1.91,
        radio: Radio {
            fading: Swing {
                sd: 0.961,
                time_ms: 528.0,
            },
            shadowing: Swing {
                sd: 0.17,
                time_ms: 1760.0,
            },
            coverage: Swing {
                sd: 0.375,
                time_ms: 30700.0,
            },
            snr: 0.13,
            outages_per_min: [25.8, 7.28, 3.27, 2.91],
            longest_outage_ms: 4061.0,
        },
        scheduler: Scheduler {
            tti_ms: 1,
            burst_packets: 0.863,
            burst_spread: 0.633,
            gap_spread: 0.69,
            pause_share: 0.284,
            pause_ms: 23.7,
            elasticity: 0.19,
        },
    },
};
