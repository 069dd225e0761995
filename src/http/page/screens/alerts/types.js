// The types of alerts as words.
export const TYPES = {
  consecutive_failures: "Failing", verification_failed: "Rejected", claim_lost: "Worker lost",
  outcome_missing: "No result", unclaimed: "Not taken", catch_up: "Caught up",
  clock_behind: "Clock behind",
};
