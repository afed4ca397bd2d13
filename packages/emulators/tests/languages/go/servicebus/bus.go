package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"golang.org/x/net/websocket"

	"outbox.emulators/checks"
)

var (
	plain          = os.Getenv("SERVICEBUS")
	secure         = os.Getenv("SECURE")
	https          = os.Getenv("HTTPS")
	administration = newAdministration(https)
)

// bus has what a check uses: clients, which it closes, and entities of its own.
type bus struct {
	ctx    context.Context
	client *azservicebus.Client
	opened []*azservicebus.Client
}

func newBus(ctx context.Context) *bus {
	own := &bus{ctx: ctx}
	own.client = own.connect(plain, nil)
	return own
}

func newAdministration(connectionString string) *admin.Client {
	client, err := admin.NewClientFromConnectionString(connectionString, nil)
	checks.Must(err)
	return client
}

// connect opens a client. Without options it repeats nothing.
func (own *bus) connect(connectionString string, options *azservicebus.ClientOptions) *azservicebus.Client {
	if options == nil {
		options = &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}}
	}
	client, err := azservicebus.NewClientFromConnectionString(connectionString, options)
	checks.Must(err)
	own.opened = append(own.opened, client)
	return client
}

func (own *bus) patient() *azservicebus.Client {
	return own.connect(plain, &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 5, RetryDelay: 20 * time.Millisecond},
	})
}

func (own *bus) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, client := range own.opened {
		_ = client.Close(ctx)
	}
}

// secured connects with TLS. With a port in the connection string the client would look for it in the certificate.
func (own *bus) secured() *azservicebus.Client {
	address := regexp.MustCompile(`sb://([^:]+):(\d+)`).FindStringSubmatch(secure)
	return own.connect(strings.Replace(secure, address[0], "sb://"+address[1], 1), &azservicebus.ClientOptions{
		CustomEndpoint: address[1] + ":" + address[2],
	})
}

func (own *bus) webSockets() *azservicebus.Client {
	return own.connect(https, &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			// This WebSocket package always names an origin: that of the emulator, which refuses other ones.
			config, err := websocket.NewConfig(args.Host, strings.Replace(args.Host, "wss:", "https:", 1))
			if err != nil {
				return nil, err
			}
			config.Protocol = []string{"amqp"}
			connection, err := config.DialContext(ctx)
			if err != nil {
				return nil, err
			}
			connection.PayloadType = websocket.BinaryFrame
			return connection, nil
		},
	})
}

func (own *bus) queue(properties admin.QueueProperties) string {
	name := checks.Unique("queue")
	_, err := administration.CreateQueue(own.ctx, name, &admin.CreateQueueOptions{Properties: &properties})
	checks.Must(err)
	return name
}

func (own *bus) plainQueue() string { return own.queue(admin.QueueProperties{}) }

func (own *bus) queueWithSessions() string {
	return own.queue(admin.QueueProperties{RequiresSession: to.Ptr(true)})
}

// topic makes a topic with the subscription `all`.
func (own *bus) topic(properties admin.SubscriptionProperties) string {
	name := checks.Unique("topic")
	_, err := administration.CreateTopic(own.ctx, name, nil)
	checks.Must(err)
	_, err = administration.CreateSubscription(own.ctx, name, "all", &admin.CreateSubscriptionOptions{Properties: &properties})
	checks.Must(err)
	return name
}

func (own *bus) sender(entity string) *azservicebus.Sender {
	sender, err := own.client.NewSender(entity, nil)
	checks.Must(err)
	return sender
}

func (own *bus) receiver(queue string) *azservicebus.Receiver {
	return own.receiverWith(queue, nil)
}

func (own *bus) receiverWith(queue string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	receiver, err := own.client.NewReceiverForQueue(queue, options)
	checks.Must(err)
	return receiver
}

func (own *bus) deadLetters(queue string) *azservicebus.Receiver {
	return own.receiverWith(queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (own *bus) subscription(topic string) *azservicebus.Receiver {
	receiver, err := own.client.NewReceiverForSubscription(topic, "all", nil)
	checks.Must(err)
	return receiver
}

func (own *bus) session(queue, id string) *azservicebus.SessionReceiver {
	session, err := own.client.AcceptSessionForQueue(own.ctx, queue, id, nil)
	checks.Must(err)
	return session
}

func (own *bus) nextSession(queue string) *azservicebus.SessionReceiver {
	session, err := own.client.AcceptNextSessionForQueue(own.ctx, queue, nil)
	checks.Must(err)
	return session
}

func (own *bus) send(entity string, messages ...*azservicebus.Message) {
	sender := own.sender(entity)
	for _, message := range messages {
		checks.Must(sender.SendMessage(own.ctx, message, nil))
	}
	checks.Must(sender.Close(own.ctx))
}

func message(body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body)}
}

func inSession(id string, bodies ...string) []*azservicebus.Message {
	var found []*azservicebus.Message
	for _, body := range bodies {
		found = append(found, &azservicebus.Message{Body: []byte(body), SessionID: to.Ptr(id)})
	}
	return found
}

// receives is a receiver of a queue, a subscription or a session.
type receives interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// receive receives `count` messages, waiting until they are there.
func (own *bus) receive(receiver receives, count int) []*azservicebus.ReceivedMessage {
	var found []*azservicebus.ReceivedMessage
	for len(found) < count {
		more, err := receiver.ReceiveMessages(own.ctx, count-len(found), nil)
		checks.Must(err)
		found = append(found, more...)
	}
	return found
}

func (own *bus) receiveOne(receiver receives) *azservicebus.ReceivedMessage {
	return own.receive(receiver, 1)[0]
}

// remaining returns what is left, after a short wait.
func (own *bus) remaining(receiver receives) []string {
	ctx, cancel := context.WithTimeout(own.ctx, 300*time.Millisecond)
	defer cancel()
	found, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		panic(err)
	}
	return bodies(found)
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.Body))
	}
	return found
}

// fails expects an error of the client with this code.
func fails(code azservicebus.Code, err error) {
	var known *azservicebus.Error
	if !errors.As(err, &known) || known.Code != code {
		panic(fmt.Sprintf("expected %s, but was %T %v", code, err, err))
	}
}

// refused expects an HTTP status of the administration API.
func refused(status int, err error) {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.StatusCode != status {
		panic(fmt.Sprintf("expected %d, but was %T %v", status, err, err))
	}
}

func count(path, kind string) int {
	entity := checks.Ask("GET", os.Getenv("ADMIN")+"/admin/entities", nil)[path].(map[string]any)
	return int(entity[kind].(float64))
}

// inject has the emulator fail as `kind` says, and returns how often it has.
func inject(kind, entity string, times int) func() int {
	fault := map[string]any{"kind": kind, "entity": entity}
	if times > 1 {
		fault["count"] = times
	}
	return checks.Inject(os.Getenv("ADMIN")+"/admin/faults", fault)
}
