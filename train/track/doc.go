// Package track records and shows the measurements of a run.
//
// A [Tracker] takes numbers, text and groups of numbers by name and step. [TensorBoard] writes
// event files for TensorBoard, [JSONL] and [CSV] write tables, and [Curve] draws the loss to a PNG
// file. [Open] makes them by name. [Progress] is a progress line on a terminal, and plain lines
// elsewhere. [DrawPNG] and [DrawText] draw any [Series].
//
// Trackers write at once, so that a killed run loses at most its last record. They continue
// existing files. The package knows no models and no ranks: with several ranks only the main one
// should have trackers. Nothing here is safe for concurrent use.
package track
