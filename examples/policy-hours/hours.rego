# Production requires approval outside working hours. In a directory of its own: decisions of rules that read the time
# cannot be cached.
package outlast.job

require_approval contains {"rule": "production-after-hours", "reason": reason} if {
	input.labels.env == "production"
	not working_hours
	reason := sprintf("production at %s is outside working hours", [input.time.rfc3339])
}

throttle contains {"rule": "batch-at-noon", "reason": "no batch jobs between 12:00 and 13:00", "for_ms": wait} if {
	input.job.priority == "batch"
	input.time.hour == 12
	wait := (60 - input.time.minute) * 60000
}

working_hours if {
	not input.time.weekday in {"saturday", "sunday"}
	input.time.hour >= 7
	input.time.hour < 18
}
