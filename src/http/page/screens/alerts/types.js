// The types of alerts as words.
export const TYPES = {
  __proto__: null,
  consecutive_failures: "Failing", verification_failed: "Rejected", claim_lost: "Worker lost",
  outcome_missing: "No result", unclaimed: "Unclaimed", catch_up: "Caught up",
  clock_behind: "Clock behind", time_zone_changed: "Time zone",
};
