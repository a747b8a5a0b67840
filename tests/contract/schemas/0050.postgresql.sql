CREATE TABLE bans (
	id BIGSERIAL NOT NULL,
	owner TEXT NOT NULL,
	site TEXT DEFAULT '' NOT NULL,
	banned_by TEXT NOT NULL,
	reason TEXT DEFAULT '' NOT NULL,
	since FLOAT NOT NULL,
	until FLOAT,
	ended FLOAT,
	ended_by TEXT DEFAULT '' NOT NULL,
	enforced FLOAT,
	PRIMARY KEY (id)
);

CREATE UNIQUE INDEX ix_bans_in_force ON bans (owner, site) WHERE ended IS NULL;

CREATE TABLE catalogues (
	name TEXT NOT NULL,
	asked FLOAT NOT NULL,
	answered FLOAT,
	software TEXT DEFAULT '' NOT NULL,
	problem TEXT DEFAULT '' NOT NULL,
	since FLOAT NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE followed_datasets (
	dataset_id BIGINT NOT NULL,
	asked FLOAT NOT NULL,
	read FLOAT,
	tried FLOAT,
	problem TEXT DEFAULT '' NOT NULL,
	note TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (dataset_id)
);

CREATE TABLE block_registrations (
	block_id BIGINT NOT NULL,
	dataset_id BIGINT NOT NULL,
	catalogue TEXT NOT NULL,
	intended FLOAT NOT NULL,
	registered FLOAT,
	tried FLOAT,
	failures INTEGER DEFAULT '0' NOT NULL,
	problem TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (block_id)
);

CREATE INDEX ix_block_registrations_open ON block_registrations (catalogue, block_id) WHERE registered IS NULL;

CREATE TABLE closed_registrations (
	dataset_id BIGINT NOT NULL,
	closed FLOAT NOT NULL,
	PRIMARY KEY (dataset_id)
);

CREATE TABLE gates (
	submission_id BIGINT NOT NULL,
	job_id BIGINT NOT NULL,
	outlook TEXT NOT NULL,
	reason TEXT DEFAULT '' NOT NULL,
	settled SMALLINT NOT NULL,
	cursor BIGINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (submission_id, job_id)
);

CREATE INDEX ix_gates_unsettled ON gates (submission_id, job_id) WHERE settled = 0;

CREATE TABLE conditions (
	submission_id BIGINT NOT NULL,
	job_id BIGINT NOT NULL,
	number INTEGER NOT NULL,
	condition TEXT NOT NULL,
	parent_job BIGINT NOT NULL,
	parent_submission BIGINT NOT NULL,
	outlook TEXT NOT NULL,
	reason TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (submission_id, job_id, number)
);

CREATE INDEX ix_conditions_parent_submission ON conditions (parent_submission) WHERE parent_submission <> 0;

CREATE INDEX ix_conditions_parent_job ON conditions (parent_job) WHERE parent_job <> 0;

CREATE TABLE parent_submissions (
	submission_id BIGINT NOT NULL,
	cursor BIGINT DEFAULT '0' NOT NULL,
	marked SMALLINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (submission_id)
);

CREATE INDEX ix_parent_submissions_unmarked ON parent_submissions (submission_id) WHERE marked = 0;

CREATE TABLE parent_changes (
	id BIGSERIAL NOT NULL,
	job_id BIGINT NOT NULL,
	submission_id BIGINT NOT NULL,
	state TEXT NOT NULL,
	PRIMARY KEY (id)
);

CREATE TABLE datasets (
	id BIGSERIAL NOT NULL,
	name TEXT NOT NULL,
	owner TEXT NOT NULL,
	grp TEXT NOT NULL,
	created FLOAT NOT NULL,
	open SMALLINT DEFAULT '1' NOT NULL,
	request_id BIGINT,
	step INTEGER,
	catalogue TEXT DEFAULT '' NOT NULL,
	removed FLOAT,
	PRIMARY KEY (id),
	UNIQUE (name)
);

CREATE TABLE blocks (
	id BIGSERIAL NOT NULL,
	dataset_id BIGINT NOT NULL,
	name TEXT NOT NULL,
	created FLOAT NOT NULL,
	open SMALLINT DEFAULT '1' NOT NULL,
	closed_number BIGINT,
	files INTEGER DEFAULT '0' NOT NULL,
	events BIGINT DEFAULT '0' NOT NULL,
	size BIGINT DEFAULT '0' NOT NULL,
	location_set BIGINT DEFAULT '0' NOT NULL,
	located FLOAT,
	PRIMARY KEY (id),
	CONSTRAINT uq_blocks_name UNIQUE (dataset_id, name)
);

CREATE INDEX ix_blocks_closed ON blocks (dataset_id, closed_number) WHERE closed_number IS NOT NULL;

CREATE INDEX ix_blocks_open ON blocks (dataset_id, id) WHERE open = 1;

CREATE INDEX ix_blocks_dataset ON blocks (dataset_id, id);

CREATE TABLE files (
	id BIGSERIAL NOT NULL,
	dataset_id BIGINT NOT NULL,
	block_id BIGINT NOT NULL,
	name TEXT NOT NULL,
	size BIGINT DEFAULT '0' NOT NULL,
	events BIGINT DEFAULT '0' NOT NULL,
	checksum TEXT DEFAULT '' NOT NULL,
	lumis TEXT DEFAULT '' NOT NULL,
	created FLOAT NOT NULL,
	element_job_id BIGINT,
	PRIMARY KEY (id),
	CONSTRAINT uq_files_name UNIQUE (dataset_id, name)
);

CREATE INDEX ix_files_block ON files (block_id, id);

CREATE TABLE replicas (
	block_id BIGINT NOT NULL,
	site TEXT NOT NULL,
	prefix TEXT NOT NULL,
	known FLOAT NOT NULL,
	PRIMARY KEY (block_id, site)
);

CREATE TABLE location_sets (
	id BIGSERIAL NOT NULL,
	digest TEXT NOT NULL,
	sites TEXT NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (digest)
);

CREATE TABLE moved_blocks (
	block_id BIGINT NOT NULL,
	number INTEGER NOT NULL,
	moved FLOAT NOT NULL,
	PRIMARY KEY (block_id)
);

CREATE TABLE storage_places (
	site TEXT NOT NULL,
	path TEXT NOT NULL,
	PRIMARY KEY (site, path)
);

CREATE TABLE history (
	id BIGINT NOT NULL,
	submission_id BIGINT NOT NULL,
	queue_id BIGINT NOT NULL,
	state TEXT NOT NULL,
	user_priority SMALLINT NOT NULL,
	parameters TEXT,
	epoch INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	failures INTEGER NOT NULL,
	own_failures INTEGER NOT NULL,
	finished_epoch INTEGER NOT NULL,
	finished_digest TEXT NOT NULL,
	reason TEXT NOT NULL,
	exit_code INTEGER,
	submitted FLOAT NOT NULL,
	ended FLOAT NOT NULL,
	last_event BIGINT NOT NULL,
	owner TEXT NOT NULL,
	grp TEXT NOT NULL,
	job_name TEXT NOT NULL,
	job_group TEXT NOT NULL,
	job_type TEXT NOT NULL,
	started FLOAT,
	pilot_id BIGINT,
	site TEXT NOT NULL,
	ce TEXT NOT NULL,
	hostname TEXT NOT NULL,
	has_dependants SMALLINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (id, ended)
)
 PARTITION BY RANGE (ended);

CREATE INDEX ix_history_owner ON history (owner, state, id);

CREATE INDEX ix_history_grp ON history (grp, state, id);

CREATE INDEX ix_history_state ON history (state, id);

CREATE INDEX ix_history_submission ON history (submission_id, id);

CREATE INDEX ix_history_job_name ON history (job_name, id) WHERE job_name <> '';

CREATE INDEX ix_history_ended ON history (ended);

CREATE INDEX ix_history_job_group ON history (job_group, id) WHERE job_group <> '';

CREATE TABLE events (
	id BIGINT NOT NULL,
	at FLOAT NOT NULL,
	kind TEXT NOT NULL,
	actor TEXT NOT NULL,
	"old" TEXT NOT NULL,
	"new" TEXT NOT NULL,
	detail TEXT NOT NULL,
	jobs TEXT NOT NULL,
	xid BIGINT DEFAULT (pg_current_xact_id()::text::bigint) NOT NULL,
	PRIMARY KEY (id, at)
)
 PARTITION BY RANGE (at);

CREATE INDEX ix_events_xid ON events (xid, id);

CREATE TABLE retention (
	name TEXT NOT NULL,
	until FLOAT,
	ran FLOAT NOT NULL,
	total BIGINT NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE removals (
	id BIGSERIAL NOT NULL,
	kind TEXT NOT NULL,
	names TEXT NOT NULL,
	PRIMARY KEY (id)
);

CREATE TABLE instance (
	id SERIAL NOT NULL,
	uuid TEXT NOT NULL,
	incarnation INTEGER NOT NULL,
	alive_at FLOAT NOT NULL,
	id_floor BIGINT DEFAULT '0' NOT NULL,
	use_as_of FLOAT,
	signing_key TEXT DEFAULT '' NOT NULL,
	sandboxes TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (id)
);

CREATE TABLE policies (
	version BIGSERIAL NOT NULL,
	text TEXT NOT NULL,
	applied_at FLOAT NOT NULL,
	applied_by TEXT NOT NULL,
	reason TEXT NOT NULL,
	PRIMARY KEY (version)
);

CREATE TABLE servers (
	name TEXT NOT NULL,
	host TEXT NOT NULL,
	url TEXT NOT NULL,
	version TEXT NOT NULL,
	started FLOAT NOT NULL,
	alive_at FLOAT NOT NULL,
	policy_version BIGINT NOT NULL,
	pilot_url TEXT DEFAULT '' NOT NULL,
	fingerprints TEXT DEFAULT '' NOT NULL,
	recorded SMALLINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE duties (
	name TEXT NOT NULL,
	holder TEXT DEFAULT '' NOT NULL,
	epoch BIGINT DEFAULT '0' NOT NULL,
	until FLOAT DEFAULT '0' NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE counters (
	name TEXT NOT NULL,
	last BIGINT NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE changes (
	id BIGSERIAL NOT NULL,
	xid BIGINT NOT NULL,
	at FLOAT NOT NULL,
	server TEXT NOT NULL,
	payload TEXT NOT NULL,
	PRIMARY KEY (id)
);

CREATE INDEX ix_changes_xid ON changes (xid);

CREATE TABLE limit_states (
	limit_key TEXT NOT NULL,
	running INTEGER,
	free INTEGER NOT NULL,
	starts FLOAT NOT NULL,
	since FLOAT NOT NULL,
	PRIMARY KEY (limit_key)
);

CREATE TABLE limit_blocks (
	limit_key TEXT NOT NULL,
	server TEXT NOT NULL,
	free INTEGER DEFAULT '0' NOT NULL,
	starts INTEGER DEFAULT '0' NOT NULL,
	last_start FLOAT DEFAULT '0' NOT NULL,
	wants SMALLINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (limit_key, server)
);

CREATE TABLE submission_counts (
	submission_id BIGINT NOT NULL,
	month INTEGER NOT NULL,
	state TEXT NOT NULL,
	jobs BIGINT NOT NULL,
	PRIMARY KEY (submission_id, month, state)
);

CREATE TABLE owner_counts (
	month INTEGER NOT NULL,
	owner TEXT NOT NULL,
	grp TEXT NOT NULL,
	state TEXT NOT NULL,
	jobs BIGINT NOT NULL,
	PRIMARY KEY (month, owner, grp, state)
);

CREATE TABLE count_changes (
	id BIGSERIAL NOT NULL,
	month INTEGER NOT NULL,
	"old" TEXT NOT NULL,
	"new" TEXT NOT NULL,
	jobs TEXT NOT NULL,
	PRIMARY KEY (id)
);

CREATE TABLE jobs (
	id BIGSERIAL NOT NULL,
	submission_id BIGINT NOT NULL,
	queue_id BIGINT NOT NULL,
	state TEXT NOT NULL,
	user_priority SMALLINT NOT NULL,
	parameters TEXT,
	epoch INTEGER DEFAULT '0' NOT NULL,
	attempt INTEGER DEFAULT '0' NOT NULL,
	failures INTEGER DEFAULT '0' NOT NULL,
	own_failures INTEGER DEFAULT '0' NOT NULL,
	pilot_id BIGINT,
	take_number INTEGER,
	finished_epoch INTEGER DEFAULT '0' NOT NULL,
	finished_digest TEXT DEFAULT '' NOT NULL,
	reason TEXT DEFAULT '' NOT NULL,
	exit_code INTEGER,
	submitted FLOAT NOT NULL,
	started FLOAT,
	ended FLOAT,
	not_before FLOAT,
	last_event BIGINT DEFAULT '0' NOT NULL,
	name TEXT,
	owner TEXT DEFAULT '' NOT NULL,
	final_state TEXT DEFAULT '' NOT NULL,
	has_dependants SMALLINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (id)
);

CREATE INDEX ix_jobs_queue ON jobs (queue_id, user_priority, id);

CREATE INDEX ix_jobs_not_before ON jobs (not_before) WHERE not_before IS NOT NULL;

CREATE INDEX ix_jobs_owner ON jobs (owner, final_state, id);

CREATE INDEX ix_jobs_ended ON jobs (ended) WHERE ended IS NOT NULL;

CREATE TABLE attempts (
	job_id BIGINT NOT NULL,
	epoch INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	pilot_id BIGINT NOT NULL,
	started FLOAT NOT NULL,
	ended FLOAT,
	outcome TEXT,
	exit_code INTEGER,
	failure TEXT DEFAULT '' NOT NULL,
	message TEXT DEFAULT '' NOT NULL,
	wall FLOAT DEFAULT '0' NOT NULL,
	cpu FLOAT DEFAULT '0' NOT NULL,
	max_rss INTEGER DEFAULT '0' NOT NULL,
	processors INTEGER DEFAULT '1' NOT NULL,
	owner TEXT DEFAULT '' NOT NULL,
	grp TEXT DEFAULT '' NOT NULL,
	site TEXT DEFAULT '' NOT NULL,
	cpu_power FLOAT DEFAULT '1' NOT NULL,
	PRIMARY KEY (job_id, epoch)
);

CREATE INDEX ix_attempts_ended ON attempts (ended);

CREATE TABLE results (
	job_id BIGINT NOT NULL,
	epoch INTEGER NOT NULL,
	stdout BYTEA,
	stderr BYTEA,
	outputs TEXT DEFAULT '[]' NOT NULL,
	missing TEXT DEFAULT '[]' NOT NULL,
	refused TEXT DEFAULT '[]' NOT NULL,
	PRIMARY KEY (job_id, epoch)
);

CREATE TABLE parallel_limits (
	submission_id BIGINT NOT NULL,
	running INTEGER NOT NULL,
	settled SMALLINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (submission_id)
);

CREATE INDEX ix_parallel_limits_unsettled ON parallel_limits (submission_id) WHERE settled = 0;

CREATE TABLE pilots (
	id BIGSERIAL NOT NULL,
	stamp TEXT NOT NULL,
	secret_hash TEXT NOT NULL,
	idx INTEGER NOT NULL,
	nonce TEXT,
	token_hash TEXT,
	state TEXT NOT NULL,
	site TEXT NOT NULL,
	ce TEXT NOT NULL,
	only_owner TEXT,
	pilot_type TEXT NOT NULL,
	owner TEXT DEFAULT '' NOT NULL,
	grp TEXT DEFAULT '' NOT NULL,
	batch_id TEXT DEFAULT '' NOT NULL,
	hostname TEXT DEFAULT '' NOT NULL,
	version TEXT DEFAULT '' NOT NULL,
	processors INTEGER NOT NULL,
	memory INTEGER NOT NULL,
	lease_until FLOAT,
	take_number INTEGER DEFAULT '0' NOT NULL,
	taken_at FLOAT,
	jobs TEXT DEFAULT '[]' NOT NULL,
	finished INTEGER DEFAULT '0' NOT NULL,
	submitted FLOAT NOT NULL,
	started FLOAT,
	ended FLOAT,
	leave TEXT DEFAULT '' NOT NULL,
	reason TEXT DEFAULT '' NOT NULL,
	server TEXT DEFAULT '' NOT NULL,
	log TEXT DEFAULT '' NOT NULL,
	wall FLOAT DEFAULT '0' NOT NULL,
	cores_from FLOAT,
	cores_until FLOAT,
	silent_from FLOAT,
	silent_until FLOAT,
	booked_until FLOAT,
	core_seconds FLOAT DEFAULT '0' NOT NULL,
	payload_core_seconds FLOAT DEFAULT '0' NOT NULL,
	clock_offset FLOAT,
	queue_id BIGINT,
	absent_since FLOAT,
	PRIMARY KEY (id),
	UNIQUE (stamp),
	UNIQUE (token_hash)
);

CREATE INDEX ix_pilots_hostname ON pilots (hostname, started);

CREATE INDEX ix_pilots_live ON pilots (ce, id) WHERE ended IS NULL;

CREATE INDEX ix_pilots_unbooked ON pilots (id) WHERE cores_until IS NOT NULL AND (booked_until IS NULL OR booked_until < cores_until);

CREATE INDEX ix_pilots_lease ON pilots (lease_until) WHERE ended IS NULL;

CREATE INDEX ix_pilots_queue ON pilots (queue_id, started, ce, processors, memory, submitted) WHERE ended IS NULL;

CREATE INDEX ix_pilots_secret ON pilots (secret_hash, idx);

CREATE INDEX ix_pilots_batch_id ON pilots (batch_id);

CREATE INDEX ix_pilots_leaving ON pilots (ce, leave) WHERE ended IS NULL AND leave <> '';

CREATE TABLE costs (
	ce TEXT NOT NULL,
	hour BIGINT NOT NULL,
	owner TEXT NOT NULL,
	grp TEXT NOT NULL,
	payload FLOAT NOT NULL,
	startup FLOAT NOT NULL,
	idle FLOAT NOT NULL,
	lost FLOAT NOT NULL,
	PRIMARY KEY (ce, hour, owner, grp)
);

CREATE INDEX ix_costs_hour ON costs (hour);

CREATE TABLE pilot_submissions (
	id BIGSERIAL NOT NULL,
	stamp TEXT NOT NULL,
	ce TEXT NOT NULL,
	phase TEXT NOT NULL,
	pilots INTEGER NOT NULL,
	batch_id TEXT DEFAULT '' NOT NULL,
	epoch TEXT DEFAULT '' NOT NULL,
	absent_since FLOAT,
	reason TEXT DEFAULT '' NOT NULL,
	submitted FLOAT NOT NULL,
	ended FLOAT,
	releases INTEGER DEFAULT '0' NOT NULL,
	wait_class TEXT DEFAULT '' NOT NULL,
	wait_since FLOAT,
	PRIMARY KEY (id),
	UNIQUE (stamp)
);

CREATE INDEX ix_pilot_submissions_batch_id ON pilot_submissions (batch_id);

CREATE INDEX ix_pilot_submissions_live ON pilot_submissions (ce) WHERE ended IS NULL;

CREATE TABLE ce_probes (
	ce TEXT NOT NULL,
	number INTEGER NOT NULL,
	requested FLOAT NOT NULL,
	requested_by TEXT NOT NULL,
	pilot BIGINT,
	checks TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (ce)
);

CREATE TABLE ces (
	ce TEXT NOT NULL,
	section TEXT DEFAULT '' NOT NULL,
	trouble TEXT DEFAULT '' NOT NULL,
	unreachable TEXT DEFAULT '' NOT NULL,
	failures INTEGER DEFAULT '0' NOT NULL,
	not_before FLOAT DEFAULT '0' NOT NULL,
	epoch TEXT DEFAULT '' NOT NULL,
	listed FLOAT,
	alike INTEGER DEFAULT '0' NOT NULL,
	failure TEXT DEFAULT '' NOT NULL,
	queues_paused INTEGER DEFAULT '0' NOT NULL,
	queues_until FLOAT DEFAULT '0' NOT NULL,
	state TEXT DEFAULT '' NOT NULL,
	state_by TEXT DEFAULT '' NOT NULL,
	state_reason TEXT DEFAULT '' NOT NULL,
	state_since FLOAT,
	PRIMARY KEY (ce)
);

CREATE TABLE ce_information (
	ce TEXT NOT NULL,
	updated FLOAT DEFAULT '0' NOT NULL,
	expiry FLOAT DEFAULT '0' NOT NULL,
	attributes TEXT DEFAULT '{}' NOT NULL,
	hosts TEXT DEFAULT '[]' NOT NULL,
	homogeneous INTEGER DEFAULT '0' NOT NULL,
	problem TEXT DEFAULT '' NOT NULL,
	problem_since FLOAT,
	PRIMARY KEY (ce)
);

CREATE TABLE requests (
	id BIGSERIAL NOT NULL,
	name TEXT NOT NULL,
	owner TEXT NOT NULL,
	grp TEXT NOT NULL,
	priority INTEGER NOT NULL,
	team TEXT DEFAULT '' NOT NULL,
	campaign TEXT DEFAULT '' NOT NULL,
	state TEXT NOT NULL,
	specification TEXT NOT NULL,
	sites TEXT NOT NULL,
	banned_sites TEXT DEFAULT '[]' NOT NULL,
	trust_input SMALLINT DEFAULT '0' NOT NULL,
	trust_pileup SMALLINT DEFAULT '0' NOT NULL,
	open_until FLOAT,
	created FLOAT NOT NULL,
	changed FLOAT NOT NULL,
	version INTEGER DEFAULT '1' NOT NULL,
	reason TEXT DEFAULT '' NOT NULL,
	origin_id BIGINT,
	root_id BIGINT,
	idempotency_key TEXT,
	propagating SMALLINT DEFAULT '0' NOT NULL,
	paused SMALLINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT uq_requests_key UNIQUE (owner, idempotency_key)
);

CREATE INDEX ix_requests_owner ON requests (owner, id);

CREATE INDEX ix_requests_state ON requests (state, id);

CREATE INDEX ix_requests_root ON requests (root_id) WHERE root_id IS NOT NULL;

CREATE TABLE request_steps (
	request_id BIGINT NOT NULL,
	position INTEGER NOT NULL,
	name TEXT NOT NULL,
	type TEXT NOT NULL,
	start_policy TEXT NOT NULL,
	splitting TEXT NOT NULL,
	input_dataset BIGINT,
	after INTEGER,
	further_inputs TEXT DEFAULT '[]' NOT NULL,
	pileup TEXT DEFAULT '[]' NOT NULL,
	output_dataset BIGINT,
	log_dataset BIGINT,
	taken BIGINT DEFAULT '0' NOT NULL,
	closed SMALLINT DEFAULT '0' NOT NULL,
	ended SMALLINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (request_id, position)
);

CREATE INDEX ix_request_steps_input ON request_steps (input_dataset);

CREATE TABLE request_events (
	id BIGSERIAL NOT NULL,
	request_id BIGINT NOT NULL,
	at FLOAT NOT NULL,
	actor TEXT NOT NULL,
	kind TEXT NOT NULL,
	"old" TEXT DEFAULT '' NOT NULL,
	"new" TEXT DEFAULT '' NOT NULL,
	detail TEXT DEFAULT '' NOT NULL,
	xid BIGINT DEFAULT (pg_current_xact_id()::text::bigint) NOT NULL,
	PRIMARY KEY (id)
);

CREATE INDEX ix_request_events_xid ON request_events (xid, id);

CREATE INDEX ix_request_events_request ON request_events (request_id, id);

CREATE TABLE outages (
	id BIGSERIAL NOT NULL,
	down FLOAT NOT NULL,
	up FLOAT NOT NULL,
	PRIMARY KEY (id)
);

CREATE TABLE use_entities (
	place INTEGER NOT NULL,
	owner TEXT NOT NULL,
	grp TEXT NOT NULL,
	PRIMARY KEY (place)
);

CREATE TABLE use_buckets (
	span INTEGER NOT NULL,
	start BIGINT NOT NULL,
	places BYTEA NOT NULL,
	jobs BYTEA NOT NULL,
	cores BYTEA NOT NULL,
	PRIMARY KEY (span, start)
);

CREATE TABLE corrections (
	id INTEGER NOT NULL,
	at FLOAT NOT NULL,
	memory TEXT NOT NULL,
	found TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (id)
);

CREATE TABLE queue_reasons (
	id BIGSERIAL NOT NULL,
	queue_id BIGINT NOT NULL,
	since FLOAT NOT NULL,
	reason TEXT NOT NULL,
	detail TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (id)
);

CREATE INDEX ix_queue_reasons_queue ON queue_reasons (queue_id, id);

CREATE TABLE submissions (
	id BIGSERIAL NOT NULL,
	owner TEXT NOT NULL,
	grp TEXT NOT NULL,
	idempotency_key TEXT,
	submitted FLOAT NOT NULL,
	description TEXT NOT NULL,
	inputs TEXT NOT NULL,
	names TEXT NOT NULL,
	job_name TEXT NOT NULL,
	job_group TEXT NOT NULL,
	job_type TEXT NOT NULL,
	queue_id BIGINT NOT NULL,
	first_job BIGINT NOT NULL,
	count INTEGER NOT NULL,
	warnings TEXT NOT NULL,
	state TEXT DEFAULT 'closed' NOT NULL,
	touched FLOAT DEFAULT '0' NOT NULL,
	expected BIGINT,
	forgotten INTEGER DEFAULT '0' NOT NULL,
	request_id BIGINT,
	PRIMARY KEY (id),
	CONSTRAINT uq_submissions_key UNIQUE (owner, idempotency_key)
);

CREATE INDEX ix_submissions_request ON submissions (request_id) WHERE request_id IS NOT NULL;

CREATE INDEX ix_submissions_owner ON submissions (owner, id);

CREATE INDEX ix_submissions_job_group ON submissions (job_group) WHERE job_group <> '';

CREATE INDEX ix_submissions_open ON submissions (touched) WHERE state <> 'closed';

CREATE TABLE submission_chunks (
	submission_id BIGINT NOT NULL,
	number INTEGER NOT NULL,
	digest TEXT NOT NULL,
	first_job BIGINT NOT NULL,
	count INTEGER NOT NULL,
	made INTEGER NOT NULL,
	accepted FLOAT NOT NULL,
	PRIMARY KEY (submission_id, number)
);

CREATE INDEX ix_submission_chunks_unmade ON submission_chunks (submission_id) WHERE made < count;

CREATE TABLE pending_rows (
	submission_id BIGINT NOT NULL,
	number INTEGER NOT NULL,
	rows TEXT NOT NULL,
	PRIMARY KEY (submission_id, number)
);

CREATE TABLE chunk_files (
	submission_id BIGINT NOT NULL,
	number INTEGER NOT NULL,
	digest TEXT NOT NULL,
	PRIMARY KEY (submission_id, number, digest)
);

CREATE INDEX ix_chunk_files_digest ON chunk_files (digest);

CREATE TABLE uploads (
	owner TEXT NOT NULL,
	digest TEXT NOT NULL,
	size BIGINT NOT NULL,
	uploaded FLOAT NOT NULL,
	PRIMARY KEY (owner, digest)
);

CREATE TABLE queues (
	id BIGSERIAL NOT NULL,
	digest TEXT NOT NULL,
	owner TEXT NOT NULL,
	grp TEXT NOT NULL,
	identity TEXT NOT NULL,
	created FLOAT NOT NULL,
	empty_since FLOAT,
	PRIMARY KEY (id),
	UNIQUE (digest)
);

CREATE TABLE tokens (
	id BIGINT NOT NULL,
	owner TEXT NOT NULL,
	grp TEXT NOT NULL,
	issued FLOAT NOT NULL,
	expires FLOAT NOT NULL,
	issued_by TEXT NOT NULL,
	revoked FLOAT,
	revoked_by TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (id)
);

CREATE TABLE token_cutoffs (
	owner TEXT NOT NULL,
	issued_until FLOAT NOT NULL,
	PRIMARY KEY (owner)
);

CREATE TABLE signing_keys (
	number BIGINT NOT NULL,
	salt TEXT NOT NULL,
	created FLOAT NOT NULL,
	accepted_until FLOAT,
	PRIMARY KEY (number)
);

CREATE TABLE elements (
	id BIGSERIAL NOT NULL,
	request_id BIGINT NOT NULL,
	step INTEGER NOT NULL,
	digest TEXT NOT NULL,
	state TEXT NOT NULL,
	jobs INTEGER NOT NULL,
	events BIGINT DEFAULT '0' NOT NULL,
	files INTEGER DEFAULT '0' NOT NULL,
	size BIGINT DEFAULT '0' NOT NULL,
	blocks TEXT DEFAULT '[]' NOT NULL,
	mask TEXT DEFAULT '' NOT NULL,
	location_set BIGINT NOT NULL,
	created FLOAT NOT NULL,
	changed FLOAT NOT NULL,
	agent_id BIGINT,
	site TEXT DEFAULT '' NOT NULL,
	offered_to BIGINT,
	epoch INTEGER DEFAULT '0' NOT NULL,
	finished_epoch INTEGER DEFAULT '0' NOT NULL,
	finished_digest TEXT DEFAULT '' NOT NULL,
	reason TEXT DEFAULT '' NOT NULL,
	unsplit SMALLINT DEFAULT '0' NOT NULL,
	jobs_done INTEGER DEFAULT '0' NOT NULL,
	jobs_failed INTEGER DEFAULT '0' NOT NULL,
	jobs_canceled INTEGER DEFAULT '0' NOT NULL,
	events_done BIGINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (digest)
);

CREATE INDEX ix_elements_agent ON elements (agent_id, state) WHERE agent_id IS NOT NULL;

CREATE INDEX ix_elements_available ON elements (request_id, step, location_set, id) WHERE state = 'Available';

CREATE INDEX ix_elements_request ON elements (request_id, step, state);

CREATE TABLE element_jobs (
	id BIGSERIAL NOT NULL,
	element_id BIGINT NOT NULL,
	element_epoch INTEGER NOT NULL,
	digest TEXT NOT NULL,
	mask TEXT NOT NULL,
	request_id BIGINT NOT NULL,
	step INTEGER NOT NULL,
	state TEXT NOT NULL,
	location_set BIGINT NOT NULL,
	site TEXT DEFAULT '' NOT NULL,
	agent_id BIGINT,
	events BIGINT DEFAULT '0' NOT NULL,
	files INTEGER DEFAULT '0' NOT NULL,
	size BIGINT DEFAULT '0' NOT NULL,
	made FLOAT NOT NULL,
	retries INTEGER DEFAULT '0' NOT NULL,
	avoided_sites TEXT DEFAULT '[]' NOT NULL,
	not_before FLOAT,
	job_id BIGINT,
	ended FLOAT,
	exit_code INTEGER,
	failure TEXT DEFAULT '' NOT NULL,
	message TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT uq_element_jobs_digest UNIQUE (element_id, digest)
);

CREATE INDEX ix_element_jobs_cooloff ON element_jobs (not_before) WHERE state = 'cooloff';

CREATE INDEX ix_element_jobs_failed ON element_jobs (request_id, step, exit_code, failure, state) WHERE failure <> '' OR state = 'exhausted';

CREATE INDEX ix_element_jobs_request ON element_jobs (request_id, state, step, site, events, files, ended);

CREATE INDEX ix_element_jobs_job ON element_jobs (job_id) WHERE job_id IS NOT NULL;

CREATE INDEX ix_element_jobs_made ON element_jobs (request_id, step, location_set, agent_id, avoided_sites, id) WHERE state = 'made';

CREATE TABLE job_outcomes (
	id BIGSERIAL NOT NULL,
	element_job_id BIGINT NOT NULL,
	job_id BIGINT NOT NULL,
	state TEXT NOT NULL,
	at FLOAT NOT NULL,
	exit_code INTEGER,
	failure TEXT DEFAULT '' NOT NULL,
	message TEXT DEFAULT '' NOT NULL,
	wall FLOAT DEFAULT '0' NOT NULL,
	tries INTEGER DEFAULT '1' NOT NULL,
	site TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (id)
);

CREATE TABLE agents (
	id BIGSERIAL NOT NULL,
	name TEXT NOT NULL,
	team TEXT NOT NULL,
	owner TEXT NOT NULL,
	nonce TEXT NOT NULL,
	version TEXT DEFAULT '' NOT NULL,
	host TEXT DEFAULT '' NOT NULL,
	joined FLOAT NOT NULL,
	seen FLOAT NOT NULL,
	lease_until FLOAT NOT NULL,
	draining SMALLINT DEFAULT '0' NOT NULL,
	drain_since FLOAT,
	drain_jobs INTEGER DEFAULT '0' NOT NULL,
	ended FLOAT,
	pull_number INTEGER DEFAULT '0' NOT NULL,
	pull_answer TEXT DEFAULT '[]' NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (name)
);

CREATE TABLE site_states (
	site TEXT NOT NULL,
	state TEXT NOT NULL,
	changed_by TEXT NOT NULL,
	reason TEXT DEFAULT '' NOT NULL,
	since FLOAT NOT NULL,
	until FLOAT,
	PRIMARY KEY (site)
);
