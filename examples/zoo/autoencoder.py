"""A convolutional autoencoder: strided convolutions, a linear waist, transposed convolutions."""

from torch import Tensor, nn

from .layers import conv_bn


def up(cin: int, cout: int) -> nn.Sequential:
    conv = nn.ConvTranspose2d(cin, cout, 3, 2, 1, output_padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(cout), nn.LeakyReLU(0.1))


class Autoencoder(nn.Module):
    def __init__(self, width: int = 16, waist: int = 48, image: int = 64) -> None:
        super().__init__()
        side = image // 8
        self.encoder = nn.Sequential(
            conv_bn(3, width, 3, 2, act=nn.ELU),
            conv_bn(width, 2 * width, 3, 2, act=nn.ELU),
            conv_bn(2 * width, 4 * width, 3, 2, act=nn.ELU),
            nn.Flatten(),
            nn.Linear(4 * width * side * side, waist),
        )
        self.decoder = nn.Sequential(
            nn.Linear(waist, 4 * width * side * side),
            nn.Unflatten(1, (4 * width, side, side)),
            up(4 * width, 2 * width),
            up(2 * width, width),
            up(width, width),
            nn.Conv2d(width, 3, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.decoder(self.encoder(x))
        return y
