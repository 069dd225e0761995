//! Billing: one interface, two providers (contract §8). Calls block on the network or the store, so they must run on a
//! blocking thread. The effects of a purchase are in `service`.
//!
//! Manual billing links to pages of this server. A link authenticates its bearer; only its hash is stored.

pub mod stripe;

use jiff::Timestamp;

use crate::billing::stripe::Stripe;
use crate::domain::account::credentials::sha256;
use crate::domain::account::user::User;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::billing::{FREE, LINK_LIFE, Offer};
use crate::domain::row_keys::UserKey;
use crate::domain::text::hex;
use crate::error::Result;
use crate::store::Store;
use crate::store::accounts::sessions::{self, LinkKind, NewLink};
use crate::store::billing::{MAX_LINKS, NewBillingRequest, insert_request};
use crate::system::random;

#[derive(Debug)]
pub enum Provider {
    /// Users confirm requests on pages of this server, the operator decides them with `cued billing`.
    Manual,
    Stripe(Box<Stripe>),
}

#[derive(Clone, Copy)]
pub struct BillingContext<'a> {
    pub store: &'a Store,
    /// Base URL for browsers, without a trailing slash.
    pub public_url: &'a str,
    pub now: Timestamp,
}

#[derive(Debug, Clone)]
pub struct BillingAccount {
    pub user: User,
    /// Stripe's customer id from an earlier purchase.
    pub customer: Option<String>,
    /// True if the operator has ever approved a request of this user.
    pub was_approved: bool,
}

impl Provider {
    /// Errors: `billing_error` when Stripe fails, `server_busy`.
    pub fn checkout(
        &self,
        context: BillingContext<'_>,
        account: &BillingAccount,
        offer: Offer,
    ) -> Result<String> {
        match self {
            Self::Manual => request_plan(context, account.user.key, offer),
            Self::Stripe(stripe) => stripe.checkout(context.public_url, account, offer),
        }
    }

    /// Errors: `no_billing_customer`, `billing_error` when Stripe fails, `server_busy`.
    pub fn portal(&self, context: BillingContext<'_>, account: &BillingAccount) -> Result<String> {
        match self {
            Self::Manual if account.was_approved || account.user.plan != FREE => {
                plan_page(context, account.user.key)
            }
            Self::Manual => Err(never_upgraded().into()),
            Self::Stripe(stripe) => {
                let customer = account.customer.as_deref().ok_or_else(never_upgraded)?;
                stripe.portal(context.public_url, customer)
            }
        }
    }
}

fn request_plan(context: BillingContext<'_>, user_key: UserKey, offer: Offer) -> Result<String> {
    let (token, now) = (random_token()?, context.now);
    let new = NewBillingRequest {
        id: random::uuid()?,
        user_key,
        offer,
        link_hash: sha256(token.as_bytes()),
        link_expires_at: now + LINK_LIFE,
    };
    context.store.write_for(user_key, move |tx| insert_request(tx, &new, now)).wait()?;
    Ok(format!("{}/billing/checkout?token={token}", context.public_url))
}

fn plan_page(context: BillingContext<'_>, user_key: UserKey) -> Result<String> {
    let token = random_token()?;
    let link = NewLink {
        kind: LinkKind::Plan,
        user_key,
        api_key_key: None,
        session_key: None,
        token_hash: sha256(token.as_bytes()),
        expires_at: context.now + LINK_LIFE,
    };
    context
        .store
        .write_for(user_key, move |tx| sessions::insert_link(tx, &link, MAX_LINKS))
        .wait()?;
    Ok(format!("{}/billing/portal?token={token}", context.public_url))
}

fn random_token() -> Result<String> {
    Ok(hex::encode(&random::bytes::<32>()?))
}

fn never_upgraded() -> Refusal {
    Refusal::new(ErrorCode::NoBillingCustomer, "This account has never upgraded from the free plan")
}
