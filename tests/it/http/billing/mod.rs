//! Manual billing and Stripe.

mod manual;
mod stripe;
