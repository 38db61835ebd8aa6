package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// A Code says what kind of error a handler has returned. The codes below are those of gRPC, without its 16 for callers
// that have not proved who they are: [CodeUnauthenticated] is that of a connection. Programs use them, or their own
// from 100 on. 0 is not the code of an error.
type Code uint32

// The codes of gRPC. Handlers choose them. The package itself sends 1, 2, 4, 8, 13 and 14.
const (
	// CodeCanceled is that of context.Canceled, and of a call that was canceled before its handler could begin.
	CodeCanceled Code = 1
	// CodeUnknown is that of errors without a code, and of those of calls that the handler has made.
	CodeUnknown         Code = 2
	CodeInvalidArgument Code = 3 // the request is wrong, in any state of the server
	// CodeDeadlineExceeded is that of context.DeadlineExceeded, and of a call whose deadline has passed before its
	// handler could begin.
	CodeDeadlineExceeded Code = 4
	CodeNotFound         Code = 5
	CodeAlreadyExists    Code = 6
	CodePermissionDenied Code = 7 // the caller is known, and may not do it
	// CodeResourceExhausted means that there is no memory for the request, or that the reply is longer than the caller
	// permits.
	CodeResourceExhausted  Code = 8
	CodeFailedPrecondition Code = 9  // not before the state of the server has changed
	CodeAborted            Code = 10 // for example by another transaction
	CodeOutOfRange         Code = 11
	CodeUnimplemented      Code = 12
	// CodeInternal means that the handler has panicked.
	CodeInternal Code = 13
	// CodeUnavailable means that the handler has not begun, because of [Listener.Shutdown]. [Client.Retry] calls again
	// on another connection, also if a handler has returned this code.
	CodeUnavailable Code = 14
	CodeDataLoss    Code = 15
)

// A CallError is the error of a call whose handler has returned an error. [Conn.Call] and [Conn.CallBuffer] return it
// in an [*Error], and a handler returns one to choose the code. It matches context.DeadlineExceeded if its code is
// [CodeDeadlineExceeded], and context.Canceled if it is [CodeCanceled].
type CallError struct {
	Code Code
	Text string // UTF-8; of a peer, at most 1024 bytes

	pairs string // of metadata, encoded
}

// Metadata returns what the peer has sent beside the error by [Message.SetReplyMetadata], or nil. It is not passed on
// if a handler returns the error of another server.
func (e *CallError) Metadata() map[string]string { return decodePairs([]byte(e.pairs)) }

// Error implements error.
func (e *CallError) Error() string {
	return fmt.Sprintf("rdma: the server has returned code %d: %s", e.Code, e.Text)
}

// Is matches the errors of contexts.
func (e *CallError) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Code == CodeDeadlineExceeded ||
		target == context.Canceled && e.Code == CodeCanceled
}

// callErrorOf returns what the caller gets of the error of a handler.
func callErrorOf(err error) *CallError {
	var own *CallError
	e := &CallError{Code: CodeUnknown, Text: err.Error()}
	switch {
	case errors.As(err, &own) && isOfCall(err, own): // what another server says of itself, such as CodeUnavailable
	case own != nil:
		e.Code = own.Code
		if err == error(own) {
			e.Text = own.Text
		}
	case errors.Is(err, context.DeadlineExceeded):
		e.Code = CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		e.Code = CodeCanceled
	}
	if e.Code == 0 {
		e.Code = CodeUnknown
	}
	return e
}

// isOfCall reports whether e is what Call has returned, in err.
func isOfCall(err error, e *CallError) bool {
	var op *Error
	var of *CallError
	return errors.As(err, &op) && errors.As(op.Err, &of) && of == e
}

const (
	callErrorLen = 4    // without the text
	maxErrorText = 1024 // bytes
)

// bytes returns the body of a kindError for a peer without featureReplyTrailers, whose receives have the given length.
func (e *CallError) bytes(eager int) []byte {
	text := cutText(e.Text, min(maxErrorText, eager-callErrorLen))
	return append(binary.LittleEndian.AppendUint32(nil, uint32(e.Code)), text...)
}

// parseCallError checks the body of a peer's kindError.
func parseCallError(b []byte) (*CallError, error) {
	if len(b) < callErrorLen || len(b) > callErrorLen+maxErrorText {
		return nil, fmt.Errorf("%w: an error of %d bytes: it has %d to %d", ErrProtocol, len(b), callErrorLen,
			callErrorLen+maxErrorText)
	}
	return newCallError(Code(binary.LittleEndian.Uint32(b)), b[callErrorLen:])
}

// newCallError checks the code and the text of a peer's error.
func newCallError(code Code, text []byte) (*CallError, error) {
	if code == 0 || len(text) > maxErrorText || !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: an error with code %d, which is not 0, and the text %.40q of %d bytes, which is UTF-8 "+
			"of at most %d", ErrProtocol, code, text, len(text), maxErrorText)
	}
	return &CallError{Code: code, Text: string(text)}, nil
}
