//! Stackful fibers.
