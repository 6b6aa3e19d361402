import java.net.InetAddress;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;

/** A member of a JGroups cluster on its own TCP stack (tcp.xml): reliable, in the order of each sender. */
public final class JGroupsMember {
    public static void main(String[] args) throws Exception {
        Load load = new Load(args);
        JChannel channel = new JChannel("tcp.xml").name("n" + load.index);
        channel.getProtocolStack().getTransport().setBindAddress(InetAddress.getByName("127.0.0.1"));
        channel.getProtocolStack().getTransport().setBindPort(Integer.parseInt(args[4].split(",")[load.index]));
        channel.setReceiver(new Receiver() {
            @Override
            public void receive(Message message) {
                load.take(message.getArray(), message.getOffset(), message.getLength());
            }
        });
        channel.connect("bench");
        System.out.println("up");
        while (channel.getView().size() < load.nodes) Thread.sleep(50);
        load.run(payload -> channel.send(new BytesMessage(null, payload)));
        channel.close();
    }
}
