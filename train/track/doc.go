// Package track shows and keeps what a run measures.
//
// A [Tracker] takes numbers, text and groups of numbers by name and step:
// [TensorBoard] writes event files that TensorBoard reads, [JSONL] and [CSV] write
// tables, [Curve] draws the loss to a PNG file. [Open] makes them by name. [Progress] is
// a line in a terminal that shows how far a run is, and plain lines where there is no
// terminal. [DrawPNG] and [DrawText] draw any [Series].
//
// Trackers write as they are told, so that a run that is killed loses no more than its
// last record, and go on with the files that they find. The package knows nothing of
// models or ranks: in a world of several ranks only the main one should have trackers.
// Nothing here is safe for use by several goroutines at once.
package track
