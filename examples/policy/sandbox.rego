# How far jobs are kept from their hosts and from the network.
package outlast.job

import data.outlast.lib.tenants

deny contains {"rule": "no-sandbox", "reason": "jobs run in a sandbox here: leave `sandbox` out or ask for more"} if {
	input.job.sandbox == "none"
}

constrain contains {
	"rule": "untrusted-network",
	"reason": "tenants that are not trusted have no network",
	"network": false,
	"sandbox": "strict",
} if {
	not tenants.is_trusted(input.tenant)
	input.job.run.process
}
