SELECT {batch} FROM {schema}.batches b
