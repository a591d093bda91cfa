-- Make a batch, unless it is here. $1: its columns, in order
INSERT INTO batches ({batch}) VALUES ({batch_values}) ON CONFLICT DO NOTHING
