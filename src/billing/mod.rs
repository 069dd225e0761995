//! Billing: one interface, two providers (contract §8). Calls block on the network or the store, so they must run on a
//! blocking thread. The effects of a purchase are in `actions`.

mod manual;
pub mod stripe;

use jiff::Timestamp;

use crate::billing::stripe::Stripe;
use crate::domain::account::user::User;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::billing::offer::{FREE, Offer};
use crate::error::Result;
use crate::store::Store;

#[derive(Debug)]
pub enum Provider {
    /// Manual billing: users confirm requests on pages of this server, the operator decides them with `cued billing`.
    Manual,
    /// Stripe: payment on its pages, subscriptions reported by webhook events.
    Stripe(Box<Stripe>),
}

/// The server's side of a billing call.
#[derive(Clone, Copy)]
pub struct BillingContext<'a> {
    /// Stores the links of manual billing.
    pub store: &'a Store,
    /// Base URL for browsers, without a trailing slash.
    pub public_url: &'a str,
    pub now: Timestamp,
}

/// The user's side of a billing call.
#[derive(Debug, Clone)]
pub struct BillingAccount {
    pub user: User,
    /// Stripe's customer id from an earlier purchase.
    pub customer: Option<String>,
    /// True if the operator has ever approved a request of this user.
    pub was_approved: bool,
}

impl Provider {
    /// Returns the URL of a page where the user buys or requests a plan.
    /// Errors: `billing_error` when Stripe fails, `server_busy`.
    pub fn checkout(
        &self,
        context: BillingContext<'_>,
        account: &BillingAccount,
        offer: Offer,
    ) -> Result<String> {
        match self {
            Self::Manual => manual::checkout(context, account, offer),
            Self::Stripe(stripe) => stripe.checkout(context.public_url, account, offer),
        }
    }

    /// Returns the URL of a page where the user sees and cancels the plan.
    /// Errors: `no_billing_customer`, `billing_error` when Stripe fails, `server_busy`.
    pub fn portal(&self, context: BillingContext<'_>, account: &BillingAccount) -> Result<String> {
        match self {
            Self::Manual if account.was_approved || account.user.plan != FREE => {
                manual::portal(context, account)
            }
            Self::Manual => Err(never_upgraded().into()),
            Self::Stripe(stripe) => {
                let customer = account.customer.as_deref().ok_or_else(never_upgraded)?;
                stripe.portal(context.public_url, customer)
            }
        }
    }
}

fn never_upgraded() -> Refusal {
    Refusal::new(ErrorCode::NoBillingCustomer, "This account has never upgraded from the free plan")
}
