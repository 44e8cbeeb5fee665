// Package wire has the parts that all HTTP dialects share: decoding of JSON bodies, server-sent
// events, and errors that belong to no dialect.
//
// [ReadBody] reads a request's body and [ParseFields] parses its object. The methods of [Fields]
// read one field each. Errors name the field by its path, such as stream_options.include_usage.
// [Memory] limits the memory of all requests together; each request reserves its memory in a
// [Claim].
//
// An [Error] has a [Kind], the path of the invalid field and a message. A dialect writes it in its
// own form with an [ErrorWriter]. The middleware of package api uses the ErrorWriter of the
// requested path, so a client always gets errors in the form of its own dialect.
//
// [Events] writes server-sent events. [Each] sends the values of a source as events and keeps a
// silent connection alive.
//
// The package does not depend on endpoints, models or tokens.
package wire
