-- For tests/support/servers/schemas.py: makes a used schema like one that was just migrated, called "model".

-- What a migration makes: if a test changed it, the schema is not to be used again. Statistics are part of it, as they
-- would have the same statements planned in other ways.
CREATE FUNCTION pg_temp.shape(schema text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  shape text;
  steps text;
BEGIN
  SELECT string_agg(concat_ws(' ', relname, relkind, relnatts, relchecks, relhastriggers, relhasrules, relrowsecurity,
      reloptions, relacl, relowner, relkind = 'r' AND reltuples >= 0), E'\n' ORDER BY relname)
    INTO shape FROM pg_class WHERE relnamespace = to_regnamespace(schema);
  IF shape IS NOT NULL THEN
    EXECUTE format('SELECT string_agg(name || checksum, E''\n'' ORDER BY name) FROM %I.migrations', schema) INTO steps;
  END IF;
  RETURN concat_ws(E'\n', shape, steps, (SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace(schema)));
END $$;

-- Whether it was done; null: somebody is still reading or writing there. Whoever only begins to meanwhile waits for the
-- locks, and then finds no schema of the name.
CREATE FUNCTION pg_temp.renew(used text, name text, model text, shape_of_model text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  relation record;
BEGIN
  IF pg_temp.shape(used) <> shape_of_model THEN
    RETURN false;
  END IF;
  BEGIN
    EXECUTE (SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', string_agg(oid::regclass::text, ', '))
      FROM pg_class WHERE relnamespace = to_regnamespace(used) AND relkind = 'r');
  EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
  END;
  FOR relation IN SELECT oid, relname, relkind FROM pg_class
      WHERE relnamespace = to_regnamespace(used) AND relkind IN ('r', 'S') AND relname <> 'migrations' LOOP
    IF relation.relkind = 'S' THEN
      EXECUTE format('SELECT setval(%L, last_value, is_called) FROM %I.%I', relation.oid::regclass, model, relation.relname);
    ELSIF pg_relation_size(relation.oid) > 0 THEN
      -- To truncate takes much longer than to delete a few rows. A table of less than ten pages without statistics is
      -- planned for as if it had ten: what deleted rows leave behind changes nothing.
      IF pg_table_size(relation.oid) < 9 * 8192 THEN
        EXECUTE format('DELETE FROM %s', relation.oid::regclass);
      ELSE
        EXECUTE format('TRUNCATE %s', relation.oid::regclass);
      END IF;
      EXECUTE format('INSERT INTO %s OVERRIDING SYSTEM VALUE SELECT * FROM %I.%I',
        relation.oid::regclass, model, relation.relname);
    END IF;
  END LOOP;
  EXECUTE format('ALTER SCHEMA %I RENAME TO %I', used, name);
  -- Functions name the tables that they read by the schema.
  FOR relation IN SELECT oid FROM pg_proc WHERE pronamespace = to_regnamespace(name) LOOP
    EXECUTE replace(pg_get_functiondef(relation.oid), format('"%s".', used), format('"%s".', name));
  END LOOP;
  RETURN true;
END $$;
