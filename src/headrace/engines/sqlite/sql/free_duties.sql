-- Free all duties of a worker: core.lifecycle.duty.given_back. ?1 worker
UPDATE leases SET holder = NULL, until = 0 WHERE holder = ?1
