-- Store a batch, unless it is stored already. $1: its columns, in order
INSERT INTO batches ({batch}) VALUES ({batch_values}) ON CONFLICT DO NOTHING
