//! Changes that touch several aggregates in one write, whoever asks for them: people and workers (`actions`) or the
//! machine (`engine`).

pub mod fire;
pub mod plan_limits;
