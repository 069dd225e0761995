//! Who takes the money: one interface, two providers (contract §8). Calls wait for the network or the store, and so
//! belong on a thread that may block. What follows from a purchase is in `actions`.

mod manual;
pub mod stripe;

use jiff::Timestamp;

use crate::domain::account::user::User;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::billing::offer::{FREE, Offer};
use crate::error::Result;
use crate::store::Store;
use stripe::Stripe;

/// The provider of a server.
#[derive(Debug)]
pub enum Provider {
    /// The operator: users confirm requests on pages of this server, `cued billing` decides them.
    Manual,
    /// A payment provider with pages of its own, which tells of subscriptions by events.
    Stripe(Box<Stripe>),
}

/// The server that sells.
#[derive(Clone, Copy)]
pub struct BillingContext<'a> {
    /// Where links are kept.
    pub store: &'a Store,
    /// The address that browsers use, without a slash at its end.
    pub public_url: &'a str,
    /// The present.
    pub now: Timestamp,
}

/// The account that buys.
#[derive(Debug, Clone)]
pub struct BillingAccount {
    /// The account.
    pub user: User,
    /// As whom it has paid the payment provider before.
    pub customer: Option<String>,
    /// Whether the operator has ever approved a request of it.
    pub was_approved: bool,
}

impl Provider {
    /// The address of a page where the buyer gets an offer.
    ///
    /// # Errors
    /// `billing_error` when the provider does not give one.
    pub fn checkout(
        &self,
        seller: BillingContext<'_>,
        buyer: &BillingAccount,
        offer: Offer,
    ) -> Result<String> {
        match self {
            Self::Manual => manual::checkout(seller, buyer, offer),
            Self::Stripe(stripe) => stripe.checkout(seller.public_url, buyer, offer),
        }
    }

    /// The address of a page where the buyer sees and ends what it has.
    ///
    /// # Errors
    /// `no_billing_customer`, `billing_error` when the provider does not give one.
    pub fn portal(&self, seller: BillingContext<'_>, buyer: &BillingAccount) -> Result<String> {
        match self {
            Self::Manual if buyer.was_approved || buyer.user.plan != FREE => manual::portal(seller, buyer),
            Self::Manual => Err(never_upgraded().into()),
            Self::Stripe(stripe) => {
                let customer = buyer.customer.as_deref().ok_or_else(never_upgraded)?;
                stripe.portal(seller.public_url, customer)
            }
        }
    }
}

fn never_upgraded() -> Refusal {
    Refusal::new(ErrorCode::NoBillingCustomer, "This account has never upgraded from the free plan")
}
