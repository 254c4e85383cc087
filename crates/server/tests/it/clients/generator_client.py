"""Submits and reads a job with the client that openapi-generator generates. Argument: URL of the server."""

import sys

import openapi_client as api

jobs = api.JobsApi(api.ApiClient(api.Configuration(host=sys.argv[1])))
spec = api.JobSpec(run=api.Run(api.RunEcho(echo=api.EchoRun(value={"answer": 42}))))

accepted = jobs.submit_jobs(api.SubmitBody(spec)).actual_instance
assert isinstance(accepted, api.Accepted), accepted

job = jobs.get_job(accepted.id, wait_ms=20_000)
assert job.state == api.State.SUCCEEDED and job.result == {"answer": 42}, job
