package worker

// Cut says that the grace of a stop is over: calls are cut.
func (w *Worker) Cut() bool { return w.calls.Err() != nil }
