// Package finetune runs a complete fine-tuning run. It is the implementation of train run, for use
// in Go programs.
//
// [Run] takes a model, data files and [Options]. It tokenises the records, loads the model, trains
// all of its weights or an adapter, evaluates, saves checkpoints, resumes, and writes a model
// folder that serve can open. [Defaults] returns the options of train run without flags. Errors
// name options by their flags.
//
// The package combines train, train/data, train/model and train/optim. It does not read the command
// line, handle signals or print. A program connects to it by Options.Log, Progress, Started and
// Interrupt.
package finetune
