// Package finetune runs a fine-tuning run from end to end: what train run does, for Go programs.
//
// [Run] takes a model, files of records and [Options]. It tokenises the records, loads the model, trains
// all of its weights or an adapter, evaluates, saves checkpoints, resumes, and writes a folder that serve
// opens. [Defaults] are the options of train run without flags; errors name options by their flags.
//
// The package wires train, train/data, train/model and train/optim together. It reads no command line,
// handles no signals and prints nothing: Options.Log, Progress, Started and Interrupt connect a program.
package finetune
