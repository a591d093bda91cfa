-- Bring the table books up to date: jobs that were stored alone are not counted yet.
{count_jobs}
