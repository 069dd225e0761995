//! Fuzz targets: what reads bytes of strangers, on mutated inputs. No input may panic, and an accepted one must keep
//! the properties that its target names. The ordinary tests try a thousandth of the inputs of the long ones.

mod http_head;
mod mutator;
mod targets;
