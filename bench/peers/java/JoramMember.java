import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.objectweb.joram.client.jms.Queue;
import org.objectweb.joram.client.jms.admin.AdminModule;
import org.objectweb.joram.client.jms.admin.User;
import org.objectweb.joram.client.jms.tcp.TcpConnectionFactory;

/** A client of a Joram server: a queue for each member, persistent messages, one commit for each burst. */
public final class JoramMember {
    public static void main(String[] args) throws Exception {
        Load load = new Load(args);
        javax.jms.ConnectionFactory factory = TcpConnectionFactory.create("localhost", Integer.parseInt(args[4]));
        AdminModule.connect(factory, "root", "root");
        User.create("anonymous", "anonymous");
        Queue[] queues = new Queue[load.nodes];
        for (int each = 0; each < load.nodes; each++) {
            queues[each] = Queue.create("q" + each);
            queues[each].setFreeReading();
            queues[each].setFreeWriting();
        }
        AdminModule.disconnect();
        Connection connection = factory.createConnection();
        Session reading = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
        reading.createConsumer(queues[load.index]).setMessageListener(message -> {
            try {
                byte[] payload = new byte[load.size];
                load.take(payload, 0, ((BytesMessage) message).readBytes(payload));
            } catch (javax.jms.JMSException error) {
                throw new IllegalStateException(error);
            }
        });
        Session writing = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = writing.createProducer(null);
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        connection.start();
        System.out.println("up");
        load.run(new Load.Sender() {
            @Override
            public void send(byte[] payload) throws Exception {
                for (Queue queue : queues) {
                    BytesMessage message = writing.createBytesMessage();
                    message.writeBytes(payload);
                    producer.send(queue, message);
                }
            }

            @Override
            public void flush() throws Exception {
                writing.commit();
            }
        });
        connection.close();
    }
}
