-- Nothing reads heads by how long they have been idle: a delete finds them by their keys.
DROP INDEX IF EXISTS {schema}.heads_idle;
