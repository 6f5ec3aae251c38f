"""Model-driven Delay-based Congestion Control for Cellular Networks (2016), figure by figure."""
