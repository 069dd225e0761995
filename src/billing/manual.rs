//! The operator as the provider: links to pages of this server, each good for its bearer and stored hashed.

use crate::billing::{BillingAccount, BillingContext};
use crate::domain::account::credentials::sha256;
use crate::domain::billing::offer::{LINK_LIFE, Offer};
use crate::domain::hex;
use crate::error::Result;
use crate::random;
use crate::store::billing::requests;
use crate::store::billing::requests::NewBillingRequest;

/// A link to the page where the buyer confirms its request.
pub fn checkout(seller: BillingContext<'_>, buyer: &BillingAccount, offer: Offer) -> Result<String> {
    let token = token()?;
    let new = NewBillingRequest {
        id: uuid::Builder::from_random_bytes(random::bytes()?).into_uuid().to_string(),
        user_key: buyer.user.key,
        offer,
        link_hash: sha256(token.as_bytes()),
        link_expires_at: seller.now + LINK_LIFE,
    };
    seller.store.write(move |tx| requests::insert_request(tx, &new, seller.now)).wait()?;
    Ok(format!("{}/billing/checkout?token={token}", seller.public_url))
}

/// A link to the page that shows the buyer's plan and lets it cancel.
pub fn portal(seller: BillingContext<'_>, buyer: &BillingAccount) -> Result<String> {
    let (token, user_key, now) = (token()?, buyer.user.key, seller.now);
    let hash = sha256(token.as_bytes());
    let stored =
        seller.store.write(move |tx| requests::insert_portal_link(tx, user_key, &hash, now + LINK_LIFE, now));
    stored.wait()?;
    Ok(format!("{}/billing/portal?token={token}", seller.public_url))
}

fn token() -> Result<String> {
    Ok(hex::encode(&random::bytes::<32>()?))
}
