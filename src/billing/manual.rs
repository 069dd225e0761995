//! Manual billing: links to pages of this server. A link authenticates its bearer; only its hash is stored.

use crate::billing::{BillingAccount, BillingContext};
use crate::domain::account::credentials::sha256;
use crate::domain::billing::offer::{LINK_LIFE, Offer};
use crate::domain::text::hex;
use crate::error::Result;
use crate::random;
use crate::store::accounts::sessions::{self, LinkKind, NewLink};
use crate::store::billing::requests::{self, MAX_LINKS, NewBillingRequest};

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
        let (kind, expires_at) = (LinkKind::Plan, now + LINK_LIFE);
        let link =
            NewLink { kind, user_key, api_key_key: None, session_key: None, token_hash: hash, expires_at };
        sessions::insert_link(tx, &link, MAX_LINKS)
    });
    stored.wait()?;
    Ok(format!("{}/billing/portal?token={token}", context.public_url))
}

fn random_token() -> Result<String> {
    Ok(hex::encode(&random::bytes::<32>()?))
}
