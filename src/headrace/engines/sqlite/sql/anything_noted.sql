-- Whether there is something to process: notes, batches without new jobs since ?1, batches that are over.
SELECT EXISTS (SELECT 1 FROM notes)
  OR EXISTS (SELECT 1 FROM batches WHERE NOT sealed AND touched_at <= ?1)
  OR EXISTS (SELECT 1 FROM batches INDEXED BY batches_over
    WHERE sealed AND NOT settled AND total <= completed + failed + cancelled)
