# Outside working hours, production waits for a person. Kept in a directory of its own: a rule that reads the time is
# asked about every job anew, while the answers of other rules are remembered.
package outlast.job

require_approval contains {"rule": "production-after-hours", "reason": reason} if {
	input.labels.env == "production"
	not working_hours
	reason := sprintf("production at %s: someone who is awake must approve it", [input.time.rfc3339])
}

throttle contains {"rule": "batch-at-noon", "reason": "batch jobs leave the hour of noon to others", "for_ms": wait} if {
	input.job.priority == "batch"
	input.time.hour == 12
	wait := (60 - input.time.minute) * 60000
}

working_hours if {
	not input.time.weekday in {"saturday", "sunday"}
	input.time.hour >= 7
	input.time.hour < 18
}
