"""Submits and reads a job with the client that openapi-python-client generates. Argument: URL of the server."""

import sys

from outlast_client import Client
from outlast_client.api.jobs import get_job, list_jobs, submit_jobs
from outlast_client.models import Accepted, AwaitedJob, EchoRun, Job, JobPage, JobSpec, JobSpecLabels, Problem, RunEcho, State

client = Client(base_url=sys.argv[1])
spec = JobSpec(run=RunEcho(echo=EchoRun(value={"answer": 42})), labels=JobSpecLabels.from_dict({"a": "b"}))

accepted = submit_jobs.sync(client=client, body=spec)
assert isinstance(accepted, Accepted), accepted
awaited = submit_jobs.sync(client=client, body=spec, wait_ms=20_000)
assert isinstance(awaited, AwaitedJob) and awaited.state == State.SUCCEEDED, awaited

job = get_job.sync(accepted.id, client=client, wait_ms=20_000)
assert isinstance(job, Job) and job.state == State.SUCCEEDED and job.result == {"answer": 42}, job
assert job.constraints is None and job.labels["a"] == "b", job

page = list_jobs.sync(client=client, limit=1)
assert isinstance(page, JobPage) and len(page.items) == 1 and page.next_cursor, page

problem = get_job.sync("job_0000000000000", client=client)
assert isinstance(problem, Problem) and problem.code == "unknown_job", problem
