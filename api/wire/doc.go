// Package wire holds what all HTTP dialects share: the decoding of JSON bodies, server-sent
// events, and errors that belong to no dialect.
//
// [ReadBody] reads a request's body and [ParseFields] takes its object apart. The methods of
// [Fields] read one field each. Errors name the field by its path, such as
// stream_options.include_usage. [Memory] limits the memory of all requests together, of
// which each reserves some in a [Claim].
//
// An [Error] has a [Kind], the field at fault and a message. A dialect renders it in its own
// shape with an [ErrorWriter]. The middleware of package api answers with the ErrorWriter of
// the requested path, so a client always gets the errors of its own dialect.
//
// [Events] writes server-sent events. [Each] sends a source's values as events and keeps a
// silent connection alive.
//
// The package knows no endpoint, no model and no token.
package wire
