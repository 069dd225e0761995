//! The routing table: each row is a method, a path, who may call it and its handler.

use crate::domain::webhook::echo::MAX_PAYLOAD;
use crate::http::api::{
    account, admin, alerts, apply, attempts, billing, bulk, callbacks, channels, claims, cue_list,
    cues, device_login, echo, events, executions, flows, metrics, operations, sessions, stats,
    upcoming, workers,
};
use crate::http::router::{FORM_LIMIT, Route};
use crate::http::{assets, docs};
use crate::routes;

/// Bytes of an event of the payment provider. It comes without a key; an event has one object, of a few KB as a rule,
/// and an invoice with hundreds of lines has less than this.
const EVENT_LIMIT: usize = 512 << 10;

/// All routes of the API and its pages.
#[rustfmt::skip]
pub static ROUTES: &[Route] = routes! {
    GET    "/health"                                  Unmetered operations::health,
    GET    "/status"                                  Unmetered operations::status,
    GET    "/openapi.json"                            Unmetered operations::openapi,
    GET    "/v1/info"                                 Public    operations::info,

    GET    "/"                                        Asset     assets::index,
    GET    "/ui/{build}/{file}"                       Asset     assets::file,
    GET    "/ui/{build}/{folder}/{file}"              Asset     assets::file,
    GET    "/ui/{build}/{folder}/{subfolder}/{file}"  Asset     assets::file,

    GET    "/docs"                                    Asset     docs::show,
    GET    "/docs/"                                   Asset     docs::home,
    GET    "/docs/{page}"                             Asset     docs::show,
    GET    "/docs/{folder}/{page}"                    Asset     docs::show,
    GET    "/docs/{folder}/{subfolder}/{page}"        Asset     docs::show,

    POST   "/v1/auth/register"                        Public    account::register,
    GET    "/v1/auth/me"                              ApiKey    account::me,
    PATCH  "/v1/auth/me"                              ApiKey    account::update_me,
    POST   "/v1/auth/key/regenerate"                  ApiKey    account::regenerate_key,
    GET    "/v1/auth/keys"                            ApiKey    account::list_keys,
    POST   "/v1/auth/keys"                            ApiKey    account::create_key,
    DELETE "/v1/auth/keys/{key_id}"                   ApiKey    account::revoke_key,
    GET    "/v1/auth/webhook-secret"                  ApiKey    account::webhook_secret,
    POST   "/v1/auth/webhook-secret/regenerate"       ApiKey    account::rotate_secret,
    GET    "/v1/auth/alert-webhook-secret"            ApiKey    account::alert_secret,
    POST   "/v1/auth/alert-webhook-secret/regenerate" ApiKey    account::rotate_alert_secret,

    POST   "/v1/auth/session"                         Public    sessions::begin,
    DELETE "/v1/auth/session"                         ApiKey    sessions::end_own,
    GET    "/v1/auth/sessions"                        ApiKey    sessions::list,
    DELETE "/v1/auth/sessions"                        ApiKey    sessions::end_others,
    DELETE "/v1/auth/sessions/{session_id}"           ApiKey    sessions::end,
    POST   "/v1/auth/session-link"                    ApiKey    sessions::create_link,

    POST   "/v1/auth/device-code"                     Public    device_login::start,
    POST   "/v1/auth/device-code/submit-email"        Public    device_login::submit_email,
    POST   "/v1/auth/device-code/poll"                DevicePoll device_login::poll,
    GET    "/auth/device"                             Page      device_login::device_page,
    POST   "/auth/device"                             Page      device_login::submit_device_form; FORM_LIMIT,
    GET    "/v1/auth/verify"                          Page      device_login::verify_page,
    POST   "/v1/auth/verify"                          Page      device_login::confirm; FORM_LIMIT,

    POST   "/v1/cues"                                 ApiKey    cues::create,
    GET    "/v1/cues"                                 ApiKey    cue_list::list,
    POST   "/v1/cues/bulk"                            ApiKey    bulk::change_cues,
    POST   "/v1/cues/bulk-delete"                     ApiKey    bulk::delete_cues,
    PUT    "/v1/cues/by-slug/{slug}"                  ApiKey    cues::put,
    PUT    "/v1/cues/by-slug/{namespace}/{slug}"      ApiKey    cues::put,
    GET    "/v1/cues/{cue_id}"                        ApiKey    cues::show,
    PATCH  "/v1/cues/{cue_id}"                        ApiKey    cues::update,
    DELETE "/v1/cues/{cue_id}"                        ApiKey    cues::delete,
    POST   "/v1/cues/{cue_id}/fire"                   ApiKey    cues::fire,
    GET    "/v1/cues/{cue_id}/upcoming"               ApiKey    cues::upcoming,
    GET    "/v1/cues/{cue_id}/missed"                 ApiKey    cues::missed,
    POST   "/v1/apply"                                ApiKey    apply::apply,
    POST   "/v1/schedule/preview"                     ApiKey    cues::preview,
    POST   "/v1/callbacks/test"                       ApiKey    callbacks::test,

    GET    "/v1/executions"                           ApiKey    executions::list,
    GET    "/v1/executions/claimable"                 ApiKey    claims::list,
    POST   "/v1/executions/claim"                     ApiKey    claims::claim_next,
    POST   "/v1/executions/replay"                    ApiKey    bulk::replay,
    GET    "/v1/executions/{execution_id}"            ApiKey    executions::show,
    GET    "/v1/executions/{execution_id}/attempts"   ApiKey    attempts::list,
    GET    "/v1/executions/{execution_id}/request"    ApiKey    attempts::show_request,
    POST   "/v1/executions/{execution_id}/replay"     ApiKey    executions::replay,
    POST   "/v1/executions/{execution_id}/retry"      ApiKey    executions::retry,
    POST   "/v1/executions/{execution_id}/cancel"     ApiKey    executions::cancel,
    POST   "/v1/executions/{execution_id}/claim"      ApiKey    claims::claim,
    POST   "/v1/executions/{execution_id}/outcome"    ApiKey    executions::report,
    PATCH  "/v1/executions/{execution_id}/evidence"   ApiKey    executions::append_evidence,
    POST   "/v1/executions/{execution_id}/verify"     ApiKey    executions::verify,
    POST   "/v1/executions/{execution_id}/verification-pending"  ApiKey    executions::set_pending,
    POST   "/v1/executions/{execution_id}/heartbeat"  ApiKey    executions::extend_lease,
    POST   "/v1/worker/heartbeat"                     ApiKey    workers::heartbeat,
    GET    "/v1/workers"                              ApiKey    workers::list,
    DELETE "/v1/workers/{worker_id}"                  ApiKey    workers::remove,

    GET    "/v1/upcoming"                             ApiKey    upcoming::list,
    GET    "/v1/flows"                                ApiKey    flows::list,

    GET    "/v1/channels"                             ApiKey    channels::list,
    POST   "/v1/channels"                             ApiKey    channels::create,
    GET    "/v1/channels/{channel_id}"                ApiKey    channels::show,
    PATCH  "/v1/channels/{channel_id}"                ApiKey    channels::update,
    DELETE "/v1/channels/{channel_id}"                ApiKey    channels::delete,
    POST   "/v1/channels/{channel_id}/test"           ApiKey    channels::test,

    GET    "/v1/alerts"                               ApiKey    alerts::list,
    POST   "/v1/alerts/test"                          ApiKey    alerts::test,

    GET    "/v1/events"                               ApiKey    events::stream,

    GET    "/v1/usage"                                ApiKey    stats::usage,
    GET    "/v1/stats"                                ApiKey    stats::stats,
    GET    "/v1/overview"                             ApiKey    stats::overview,

    POST   "/v1/echo/{token}"                         Public    echo::receive; MAX_PAYLOAD,
    GET    "/v1/echo/{token}"                         ApiKey    echo::show,

    GET    "/v1/admin/users"                          Operator  admin::users::list,
    POST   "/v1/admin/users"                          Operator  admin::users::create,
    PATCH  "/v1/admin/users/{user_id}"                Operator  admin::users::update,
    POST   "/v1/admin/users/{user_id}/link"           Operator  admin::users::create_link,
    GET    "/v1/admin/settings"                       Operator  admin::server::settings,
    PATCH  "/v1/admin/settings"                       Operator  admin::server::update_settings,
    GET    "/v1/admin/billing"                        Operator  admin::server::list_requests,
    POST   "/v1/admin/billing/{request_id}/approve"   Operator  admin::server::approve,
    POST   "/v1/admin/billing/{request_id}/decline"   Operator  admin::server::decline,
    GET    "/v1/admin/backups"                        Operator  admin::backups::list,
    POST   "/v1/admin/backups"                        Operator  admin::backups::create,
    GET    "/v1/admin/backups/{name}"                 Operator  admin::backups::download,
    DELETE "/v1/admin/backups/{name}"                 Operator  admin::backups::delete,
    POST   "/v1/admin/promote"                        Operator  admin::server::promote,
    GET    "/v1/admin/log"                            Operator  admin::server::log,

    POST   "/v1/billing/checkout"                     ApiKey    billing::checkout,
    POST   "/v1/billing/portal"                       ApiKey    billing::portal,
    POST   "/v1/billing/webhook"                      Public    billing::webhook; EVENT_LIMIT,
    GET    "/billing/checkout"                        Page      billing::checkout_page,
    POST   "/billing/checkout"                        Page      billing::confirm; FORM_LIMIT,
    GET    "/billing/portal"                          Page      billing::portal_page,
    POST   "/billing/portal"                          Page      billing::cancel; FORM_LIMIT,
    GET    "/billing/thanks"                          Page      billing::thanks,
    GET    "/billing/closed"                          Page      billing::closed,

    GET    "/v1/test/clock"                           TestClock operations::show_test_clock,
    POST   "/v1/test/clock"                           TestClock operations::advance_test_clock,
    POST   "/v1/test/reset"                           TestClock operations::reset_test_server,
};

/// The routes of the metrics listener. The API itself does not serve `/metrics`.
#[rustfmt::skip]
pub static METRICS: &[Route] = routes! {
    GET    "/metrics"                                 Unmetered metrics::metrics,
};
