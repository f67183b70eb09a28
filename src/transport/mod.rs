//! One HTTP exchange per call.
