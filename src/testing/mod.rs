//! Tools for tests.
