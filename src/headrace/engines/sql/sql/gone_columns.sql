SELECT departure, info, beat, beats, beat_at, holds, lost FROM {schema}.gone_workers
