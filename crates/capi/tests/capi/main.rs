//! Tests of the C interface from outside: by sequences of calls, by the checked-in header, and by a program in C.

#![expect(unsafe_code, reason = "C's calls take pointers")]

mod calls;
mod header;
mod program;
