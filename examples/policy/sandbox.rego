# Sandbox and network access.
package outlast.job

import data.outlast.lib.tenants

deny contains {"rule": "no-sandbox", "reason": "jobs must run in a sandbox: remove `sandbox` or set it to `standard` or `strict`"} if {
	input.job.sandbox == "none"
}

constrain contains {
	"rule": "untrusted-network",
	"reason": "untrusted tenants have no network access",
	"network": false,
	"sandbox": "strict",
} if {
	not tenants.is_trusted(input.tenant)
	input.job.run.process
}
