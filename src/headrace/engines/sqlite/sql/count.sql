-- Jobs by queue and status as seen at a moment: queue, status, jobs, earliest arrival, whether they are
-- headrace's own. ?1 the moment
{counted.sql of_ended=}
