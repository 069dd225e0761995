//! Manual billing: links to pages of this server. A link authenticates its bearer; only its hash is stored.

use crate::billing::{BillingAccount, BillingContext};
use crate::domain::account::credentials::sha256;
use crate::domain::billing::offer::{LINK_LIFE, Offer};
use crate::domain::text::hex;
use crate::error::Result;
use crate::random;
use crate::store::billing::requests::{self, NewBillingRequest};

/// Creates a request for a plan and returns a link to the page that confirms it.
pub fn checkout(context: BillingContext<'_>, account: &BillingAccount, offer: Offer) -> Result<String> {
    let token = random_token()?;
    let new = NewBillingRequest {
        id: uuid::Builder::from_random_bytes(random::bytes()?).into_uuid().to_string(),
        user_key: account.user.key,
        offer,
        link_hash: sha256(token.as_bytes()),
        link_expires_at: context.now + LINK_LIFE,
    };
    let user_key = new.user_key;
    context.store.write_for(user_key, move |tx| requests::insert_request(tx, &new, context.now)).wait()?;
    Ok(format!("{}/billing/checkout?token={token}", context.public_url))
}

/// Returns a link to the page that shows the user's plan and cancels it.
pub fn portal(context: BillingContext<'_>, account: &BillingAccount) -> Result<String> {
    let (token, user_key, now) = (random_token()?, account.user.key, context.now);
    let hash = sha256(token.as_bytes());
    let stored = context.store.write_for(user_key, move |tx| {
        requests::insert_portal_link(tx, user_key, &hash, now + LINK_LIFE, now)
    });
    stored.wait()?;
    Ok(format!("{}/billing/portal?token={token}", context.public_url))
}

fn random_token() -> Result<String> {
    Ok(hex::encode(&random::bytes::<32>()?))
}
