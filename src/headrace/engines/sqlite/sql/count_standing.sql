-- The same without those that completed or were cancelled. ?1 the moment, ?2 the status failed
{counted.sql of_ended= AND status = ?2}
