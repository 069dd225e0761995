//! Billing: by the operator, and by the payment provider.

mod manual;
mod stripe;
