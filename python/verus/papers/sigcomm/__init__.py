"""Adaptive Congestion Control for Unpredictable Cellular Networks (ACM SIGCOMM 2015), figure by figure."""
